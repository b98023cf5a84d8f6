# A table depends on its own cells only; the document and the comparison with the paper depend on all cells.
rule table:
    input:
        metrics=lambda wildcards: table_metrics([wildcards.table]),
        confidences=lambda wildcards: ablation_confidences([wildcards.table]),
    output:
        tex="paper_tables/{table}.tex",
        html=shown("paper_tables/{table}.html", "table", "Tables", table="{table}"),
    log:
        "results/logs/tables/{table}.log",
    priority: QUICK
    resources:
        **LIGHT,
    params:
        **job("table", "table", out="paper_tables"),
    message:
        "Render the table {wildcards.table}"
    shell:
        RUN


rule tables:
    input:
        tables=expand("paper_tables/{table}.{kind}", table=TABLES, kind=["tex", "html"]),
        metrics=table_metrics(TABLES),
        confidences=ablation_confidences(TABLES),
    output:
        "paper_tables/tables.tex",
        "paper_tables/tables.pdf",
        "paper_tables/comparison.tex",
        shown("paper_tables/tables.html", "table", "Tables", table="tables"),
        [
            shown(
                f"paper_tables/comparison.{kind}",
                "comparison",
                "Comparison with the paper",
                **{"every published value": kind},
            )
            for kind in ("html", "csv")
        ],
    log:
        "results/logs/tables/tables.log",
    resources:
        **LIGHT,
    params:
        **job("tables", out="paper_tables"),
    message:
        "Put the tables together"
    shell:
        RUN


use rule tables as metrics_csv with:
    input:
        metrics=table_metrics(TABLES),
        extra=[str(Path(path).with_name("extra.json")) for path in table_metrics(TABLES)],
    output:
        out=shown("results/metrics.csv", "metrics", "Metrics", table="every metric of every method"),
    log:
        "results/logs/metrics_csv/metrics_csv.log",
    params:
        **job("metrics_csv"),
    message:
        "Put every metric of every method into one table"


use rule tables as figures with:
    input:
        PICTURES.inputs(),
    output:
        [
            shown(
                f"figures/{name}.png",
                about["kind"],
                "Figures",
                picture=about["kind"],
                of=about.get("label", "the method"),
            )
            for name, about in PICTURES.names().items()
        ],
        expand("figures/{name}.pdf", name=PICTURES.names()),
    log:
        "results/logs/figures/figures.log",
    params:
        **job("figures", out="figures"),
    message:
        "Draw the figures"
