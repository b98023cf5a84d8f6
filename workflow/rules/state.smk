# The test: a confidence LLM states its confidence in the greedy answer to every test question.
rule state:
    input:
        **TESTED,
        weights=reads("state", "weights"),
        base=base("state"),
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
        **inputs_and(of("state"), "dataset", "model", "stated"),
        weights=weights_option,
        # Shards keep what was read, and joining them reads it out.
        readout=(
            [] if READINGS.shards > 1 else ["--readout", CONFIG.evaluation.readout]
        ),
    message:
        "State confidences: {wildcards.stated} for {wildcards.model} on {wildcards.dataset}{params.note}"
    shell:
        LEASE
        + "python -m orce state --settings {params.settings:q} {params.files:q} {params.weights:q} {params.shard:q} {params.readout} --out {output.out:q} 2>&1 | tee {log:q}"
