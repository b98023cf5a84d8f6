# Section 4: metrics, tables and pictures. metrics.json has the paper's metrics, extra.json what others report.
rule evaluate:
    input:
        confidences="results/{dataset}/{model}/{method}/confidences.jsonl",
        surrogate="results/{dataset}/{model}/surrogate.csv",
        sealed="results/{dataset}/{model}/samples.manifest.json",
        weights=lambda wildcards: confidence_llms(wildcards.dataset, wildcards.model, wildcards.method),
    output:
        out="results/{dataset}/{model}/{method}/metrics.json",
        extra="results/{dataset}/{model}/{method}/extra.json",
    log:
        "results/logs/evaluate/{dataset}-{model}-{method}.log",
    benchmark:
        "results/benchmarks/evaluate/{dataset}-{model}-{method}.tsv"
    priority: QUICK
    localrule: True
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        settings=settings_of("evaluate", "{dataset}", "{model}", "{method}"),
    message:
        "Evaluate {wildcards.method} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce evaluate --settings {params.settings:q} --confidences {input.confidences}"
        " --surrogate {input.surrogate} --manifests {input.sealed} {input.weights}"
        " --out {output.out} --extra {output.extra} 2>&1 | tee {log}"


# A table depends on its own cells only; the document and the comparison with the paper depend on all cells.
rule table:
    input:
        metrics=lambda wildcards: metrics_of(wildcards.table),
        confidences=lambda wildcards: ablation_confidences(wildcards.table),
    output:
        tex="paper_tables/{table}.tex",
        html=shown("paper_tables/{table}.html", "table", "Tables", table="{table}"),
    log:
        "results/logs/tables/{table}.log",
    priority: QUICK
    localrule: True
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        settings=settings_of("table", "{table}"),
    message:
        "Render the table {wildcards.table}"
    shell:
        "python -m orce table --settings {params.settings:q} --metrics {input.metrics}"
        " --confidences {input.confidences} --out paper_tables 2>&1 | tee {log}"


rule tables:
    input:
        tables=expand("paper_tables/{table}.{kind}", table=TABLES, kind=["tex", "html"]),
        metrics=metrics_of(*TABLES),
        confidences=ablation_confidences(*TABLES),
    output:
        "paper_tables/tables.tex",
        "paper_tables/tables.pdf",
        "paper_tables/comparison.tex",
        shown("paper_tables/tables.html", "table", "Tables", table="tables"),
        shown(
            "paper_tables/comparison.csv",
            "comparison",
            "Comparison with the paper",
            **{"every published value": "csv"},
        ),
    log:
        "results/logs/tables/tables.log",
    localrule: True
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        settings=settings_of("tables"),
    message:
        "Put the tables together"
    shell:
        "python -m orce tables --settings {params.settings:q} --metrics {input.metrics}"
        " --confidences {input.confidences} --out paper_tables 2>&1 | tee {log}"


rule metrics_csv:
    input:
        metrics=metrics_of(*TABLES),
        extra=[path.replace("metrics.json", "extra.json") for path in metrics_of(*TABLES)],
    output:
        shown("results/metrics.csv", "metrics", "Metrics", table="every metric of every method"),
    log:
        "results/logs/metrics_csv/metrics_csv.log",
    localrule: True
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        settings=settings_of("metrics_csv"),
    message:
        "Put every metric of every method into one table"
    shell:
        "python -m orce metrics-csv --settings {params.settings:q} --metrics {input.metrics}"
        " --out {output} 2>&1 | tee {log}"


rule figures:
    input:
        PICTURES.inputs(),
    output:
        [
            shown(
                f"figures/{name}.png",
                about["kind"],
                "Figures",
                picture=about["kind"],
                of=about["label"],
            )
            for name, about in PICTURES.names().items()
        ],
        expand("figures/{name}.pdf", name=PICTURES.names()),
    log:
        "results/logs/figures/figures.log",
    localrule: True
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        settings=settings_of("figures"),
    message:
        "Draw the figures"
    shell:
        "python -m orce figures --settings {params.settings:q} --out figures 2>&1 | tee {log}"
