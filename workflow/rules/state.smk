# The test: a confidence LLM states its confidence in the greedy answer to every test question.
rule state:
    input:
        unpack(reads("state")),
    output:
        **READINGS.output("{stated}/confidences", "shards/{stated}", manifest=False),
    log:
        READINGS.log("state/{dataset}-{model}-{stated}"),
    benchmark:
        READINGS.benchmark("state/{dataset}-{model}-{stated}")
    priority: 20
    threads: CONFIG.resources.threads
    resources:
        **GPU_JOB,
    params:
        **READINGS.params,
        **job("state", leave=["weights"]),
        weights=partial(options, rule="state", only=["weights"]),
    message:
        "State confidences: {wildcards.stated} for {wildcards.model} on {wildcards.dataset}{params.note}"
    shell:
        logged(
            LEASE,
            RUN,
            "{params.weights:q} {params.shard:q} {params.more:q} --out {output.out:q}",
        )
