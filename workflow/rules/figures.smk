rule figures:
    input:
        pictures.inputs(PICTURES),
    output:
        [
            shown(
                f"figures/{name}.png",
                about["kind"],
                "Figures",
                picture=about["kind"],
                of=pictures.in_report(about.get("label", "the method")),
            )
            for name, about in pictures.names(PICTURES).items()
        ],
        expand("figures/{name}.pdf", name=pictures.names(PICTURES)),
    log:
        "results/logs/figures/figures.log",
    benchmark:
        "results/benchmarks/figures/figures.tsv"
    resources:
        **LIGHT,
    params:
        settings=argument(pictures.settings),
    message:
        "Draw the figures"
    shell:
        "python -m orce figures --settings {params.settings:q} --out figures 2>&1 | tee {log:q}"


# Every metric of every cell of the tables: one tidy table, and a page that sorts and filters it.
rule leaderboard:
    input:
        pictures=rules.figures.output,
        metrics=table_metrics(TABLES),
        extra=[
            str(Path(path).with_name("extra.json")) for path in table_metrics(TABLES)
        ],
    output:
        csv="results/metrics.csv",
        html=shown(
            "results/metrics.html",
            "leaderboard",
            "Metrics",
            page="every metric of every method",
        ),
    log:
        "results/logs/leaderboard/leaderboard.log",
    resources:
        **LIGHT,
    params:
        settings=argument(partial(settings.leaderboard, names=TABLES)),
    message:
        "Put every metric of every method into one table"
    shell:
        "python -m orce leaderboard --settings {params.settings:q} --metrics {input.metrics:q}"
        " --csv {output.csv:q} --html {output.html:q} 2>&1 | tee {log:q}"


# Which confidence ranks how well, beside what it needs. Asked for by name: snakemake -- frontier
rule frontier:
    input:
        metrics=rules.leaderboard.output.csv,
    output:
        picture="figures/frontier.png",
        table="results/frontier.md",
    log:
        "results/logs/frontier/frontier.log",
    resources:
        **LIGHT,
    params:
        settings=argument(partial(needs.frontier, names=TABLES)),
    message:
        "Draw what each confidence needs and how well it ranks"
    shell:
        "python -m orce frontier --settings {params.settings:q} --metrics {input.metrics:q}"
        " --picture {output.picture:q} --out {output.table:q} 2>&1 | tee {log:q}"


rule run_page:
    input:
        rules.tables.output,
        rules.figures.output,
        matrix.overlaps(CONFIG, TABLES),
        metrics=table_metrics(TABLES),
    output:
        shown("results/run.html", "run", "Run", page="provenance and run times"),
    log:
        "results/logs/run_page/run_page.log",
    resources:
        **LIGHT,
    message:
        "Write the page about the run"
    shell:
        "python -m orce run-page --metrics {input.metrics:q} --out {output:q} 2>&1 | tee {log:q}"
