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


rule agree:
    input:
        **TESTED,
    output:
        "results/{dataset}/{model}/{sampled}/confidences.jsonl",
    log:
        "results/logs/agree/{dataset}-{model}-{sampled}.log",
    benchmark:
        "results/benchmarks/agree/{dataset}-{model}-{sampled}.tsv"
    priority: QUICK
    resources:
        **LIGHT,
    params:
        files=files,
        task=task_of,
        method=partial(module_of, kind="sampled"),
        modules=argument(settings.agree, "dataset", "sampled"),
    message:
        "Measure agreement: {wildcards.sampled} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce agree --task {params.task:q} --method {params.method:q} {params.files:q} --out {output:q} 2>&1 | tee {log:q}"
