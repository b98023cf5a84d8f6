rule tables:
    input:
        table_metrics(config["paper_tables"]),
    output:
        expand(
            "paper_tables/{name}.tex",
            name=[*config["paper_tables"], "tables", "comparison"],
        ),
        "paper_tables/tables.pdf",
        [
            report(
                f"paper_tables/{name}.html",
                caption="../report/table.rst",
                category="Tables",
                labels={"table": name},
            )
            for name in [*config["paper_tables"], "tables"]
        ],
        [
            report(
                f"paper_tables/comparison.{kind}",
                caption="../report/comparison.rst",
                category="Comparison with the paper",
                labels={"every published value": kind},
            )
            for kind in ("html", "csv")
        ],
    log:
        "results/logs/tables/tables.log",
    benchmark:
        "results/benchmarks/tables/tables.tsv"
    conda:
        "../../envs/gpu.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        settings=settings.to_argument(settings.tables(config)),
    message:
        "Render the tables"
    shell:
        "python -m orce tables --settings {params.settings:q} --metrics {input} --out paper_tables 2>&1 | tee {log}"


rule paper_tables:
    default_target: True
    input:
        rules.tables.output,
        # Asked for by name, so that a deleted metrics.json is made again although the tables are there.
        table_metrics(config["paper_tables"]),
        # Beside the tables, a reader should know whether training and test sets were apart.
        overlap_reports(config["paper_tables"]),


localrules:
    tables,
    paper_tables,
