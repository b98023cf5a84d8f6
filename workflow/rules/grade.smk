# Where the configuration has a grader, it grades the answers between sampling and all that reads samples.jsonl.
if CONFIG.grading is not None:
    # Which answers mean the same.
    MEANINGS = "results/{dataset}/{model}/meanings.jsonl"

    rule grade:
        input:
            unpack(reads("grade")),
        output:
            **({"meanings": MEANINGS} if settings.grouping(CONFIG) else {}),
            samples="results/{dataset}/{model}/samples.jsonl",
            manifest="results/{dataset}/{model}/samples.manifest.json",
            verdicts="results/{dataset}/{model}/verdicts.jsonl",
            disagreements="results/{dataset}/{model}/disagreements.jsonl",
        log:
            "results/logs/grade/{dataset}-{model}.log",
        benchmark:
            "results/benchmarks/grade/{dataset}-{model}.tsv"
        wildcard_constraints:
            dataset=targets.graded(CONFIG),
        priority: 40
        threads: CONFIG.resources.threads
        resources:
            **GRADING,
        params:
            **job("grade"),
            meanings=(["--meanings", MEANINGS] if settings.grouping(CONFIG) else []),
        message:
            "Grade the answers of {wildcards.model} on {wildcards.dataset}"
        shell:
            logged(
                LEASE,
                RUN,
                "--verdicts {output.verdicts:q} --disagreements {output.disagreements:q} {params.meanings:q} --out {output.samples:q} --manifest {output.manifest:q}",
            )
