from orce.tables import layout


def table_metrics(names):
    """metrics.json files behind some tables, each once."""
    return sorted({path for name in names for _, path in layout.cells(config["tables"][name])})


rule tables:
    input:
        table_metrics(config["paper_tables"]),
    output:
        expand("paper_tables/{name}.tex", name=[*config["paper_tables"], "tables", "comparison"]),
        "paper_tables/comparison.csv",
        "paper_tables/tables.html",
        "paper_tables/tables.pdf",
    log:
        "results/logs/tables/tables.log",
    benchmark:
        "results/benchmarks/tables/tables.tsv"
    params:
        settings=settings.to_argument(settings.tables(config)),
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    message:
        "Render the tables"
    shell:
        "python -m orce tables --settings {params.settings:q} --metrics {input} --out paper_tables 2>&1 | tee {log}"


rule paper_tables:
    default_target: True
    input:
        rules.tables.output,


localrules:
    tables,
    paper_tables,
