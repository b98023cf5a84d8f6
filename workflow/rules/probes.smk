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


rule probe:
    input:
        fit_on=training_prompts,
        fit_states=reads("probe", "fit_states"),
        surrogate=reads("probe", "surrogate"),
        prompts="results/{dataset}/prompts/test.jsonl",
        states=reads("probe", "states"),
        samples="results/{dataset}/{model}/samples.jsonl",
        manifest="results/{dataset}/{model}/samples.manifest.json",
    output:
        confidences="results/{dataset}/{model}/{probed}/confidences.jsonl",
        fit="results/{dataset}/{model}/{probed}/fit.json",
    log:
        "results/logs/probe/{dataset}-{model}-{probed}.log",
    benchmark:
        "results/benchmarks/probe/{dataset}-{model}-{probed}.tsv"
    priority: QUICK
    resources:
        **ROOMY,
    params:
        **inputs_and(settings.probe, "dataset", "model", "probed"),
    message:
        "Probe {wildcards.probed} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce probe --settings {params.settings:q} {params.files:q} --out {output.confidences:q} --fit {output.fit:q} 2>&1 | tee {log:q}"
