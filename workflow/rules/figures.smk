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
                of=about.get("label", "the method"),
            )
            for name, about in PICTURES.names().items()
        ],
        expand("figures/{name}.pdf", name=PICTURES.names()),
    log:
        "results/logs/figures/figures.log",
    benchmark:
        "results/benchmarks/figures/figures.tsv"
    resources:
        **LIGHT,
    params:
        settings=argument(partial(stages.of, "figures")),
    message:
        "Draw the figures"
    shell:
        logged("python -m orce figures --settings {params.settings:q} --out figures")


rule metrics_csv:
    input:
        metrics=table_metrics(TABLES),
        extra=[
            str(Path(path).with_name("extra.json")) for path in table_metrics(TABLES)
        ],
    output:
        shown(
            "results/metrics.csv",
            "metrics",
            "Metrics",
            table="every metric of every method",
        ),
    log:
        "results/logs/metrics_csv/metrics_csv.log",
    resources:
        **LIGHT,
    params:
        settings=argument(lambda config: stages.of("metrics_csv", config, *TABLES)),
    message:
        "Put every metric of every method into one table"
    shell:
        logged(
            "python -m orce metrics-csv --settings {params.settings:q} --metrics {input.metrics:q} --out {output:q}"
        )
