# Probes: hidden states of the answer LLM or of the untrained confidence LLM, and what is fitted to them on training questions.
rule states:
    input:
        prompts=frozen(settings.read_splits, "dataset", "model"),
        samples="results/{dataset}/{model}/samples.jsonl",
        manifest="results/{dataset}/{model}/samples.manifest.json",
        surrogate="results/{dataset}/{model}/surrogate.csv",
        base=base("states"),
    output:
        **READINGS.output("states/{states}", "shards/states-{states}", manifest=False),
    log:
        READINGS.log("states/{dataset}-{model}-{states}"),
    benchmark:
        READINGS.benchmark("states/{dataset}-{model}-{states}")
    priority: 20
    threads: CONFIG.resources.threads
    resources:
        **GPU_JOB,
    params:
        **READINGS.params,
        **inputs_and(of("states"), "dataset", "model", "states"),
    message:
        "Read hidden states ({wildcards.states}) for {wildcards.model} on {wildcards.dataset}{params.note}"
    shell:
        LEASE
        + "python -m orce states --settings {params.settings:q} {params.files:q} {params.shard:q} --out {output.out:q} 2>&1 | tee {log:q}"
