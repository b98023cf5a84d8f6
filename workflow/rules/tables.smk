# A table depends on its own cells only; the document and the comparison with the paper depend on all cells.
rule table:
    input:
        metrics=partial(of_table, files=table_metrics),
        confidences=partial(of_table, files=ablation_confidences),
    output:
        tex="paper_tables/{table}.tex",
        html=shown("paper_tables/{table}.html", "table", "Tables", table="{table}"),
    log:
        "results/logs/tables/{table}.log",
    priority: QUICK
    resources:
        **LIGHT,
    params:
        settings=argument(rendered, "table"),
    message:
        "Render the table {wildcards.table}"
    shell:
        logged(
            "python -m orce table --settings {params.settings:q} --metrics {input.metrics:q} --confidences {input.confidences:q} --out paper_tables"
        )


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
    benchmark:
        "results/benchmarks/tables/tables.tsv"
    resources:
        **LIGHT,
    params:
        settings=argument(rendered),
    message:
        "Put the tables together"
    shell:
        logged(
            "python -m orce tables --settings {params.settings:q} --metrics {input.metrics:q} --confidences {input.confidences:q} --out paper_tables"
        )
