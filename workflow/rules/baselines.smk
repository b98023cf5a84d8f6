# What the field compares with, for the same greedy answers: the answer LLM's own probabilities, measures of its samples,
# calibrations on top of any method, and combinations of several.
rule likelihoods:
    input:
        **TESTED,
        base=base("likelihoods"),
    output:
        **READINGS.output("{scored}", "shards/{scored}", manifest=False),
    log:
        READINGS.log("{scored}/{dataset}-{model}"),
    benchmark:
        READINGS.benchmark("{scored}/{dataset}-{model}")
    priority: 20
    threads: CONFIG.resources.threads
    resources:
        **GPU_JOB,
    params:
        **READINGS.params,
        **inputs_and(of("likelihoods"), "dataset", "model", "scored"),
    message:
        "Read the {wildcards.scored} of {wildcards.model} on {wildcards.dataset}{params.note}"
    shell:
        LEASE
        + "python -m orce likelihoods --settings {params.settings:q} {params.files:q} {params.shard:q} --out {output.out:q} 2>&1 | tee {log:q}"


rule derive:
    input:
        **TESTED,
        likelihoods=reads("derive", "likelihoods"),
        sample_likelihoods=reads("derive", "sample_likelihoods"),
    output:
        "results/{dataset}/{model}/{measured}/confidences.jsonl",
    log:
        "results/logs/derive/{dataset}-{model}-{measured}.log",
    benchmark:
        "results/benchmarks/derive/{dataset}-{model}-{measured}.tsv"
    priority: QUICK
    resources:
        **LIGHT,
    params:
        files=files,
        task=task_of,
        method=partial(module_of, kind="measured"),
        modules=argument(settings.derive, "dataset", "measured"),
    message:
        "Derive {wildcards.measured} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce derive --task {params.task:q} --method {params.method:q} {params.files:q} --out {output:q} 2>&1 | tee {log:q}"


# Confidences of a method that ran elsewhere.
rule import_confidences:
    input:
        **TESTED,
    output:
        "results/{dataset}/{model}/{external}/confidences.jsonl",
    log:
        "results/logs/import_confidences/{dataset}-{model}-{external}.log",
    benchmark:
        "results/benchmarks/import_confidences/{dataset}-{model}-{external}.tsv"
    priority: QUICK
    resources:
        **LIGHT,
    params:
        **inputs_and(of("import_confidences"), "dataset", "model", "external"),
    message:
        "Take the given confidences of {wildcards.external} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce import-confidences --settings {params.settings:q} {params.files:q} --out {output:q} 2>&1 | tee {log:q}"


# Calibrations, combinations and probes: never fitted on a test answer.
rule fit:
    input:
        fit_on=fit_on,
        fit_confidences=reads("fit", "fit_confidences"),
        fit_states=reads("fit", "fit_states"),
        surrogate=reads("fit", "surrogate"),
        prompts="results/{dataset}/prompts/test.jsonl",
        confidences=reads("fit", "confidences"),
        states=reads("fit", "states"),
        samples=reads("fit", "samples"),
        manifest=sealed("fit", "samples"),
    output:
        confidences="results/{dataset}/{model}/{fitted}/confidences.jsonl",
        fit="results/{dataset}/{model}/{fitted}/fit.json",
    log:
        "results/logs/fit/{dataset}-{model}-{fitted}.log",
    benchmark:
        "results/benchmarks/fit/{dataset}-{model}-{fitted}.tsv"
    priority: QUICK
    resources:
        **ROOMY,
    params:
        **inputs_and(of("fit"), "dataset", "model", "fitted"),
    message:
        "Fit {wildcards.fitted} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce fit --settings {params.settings:q} {params.files:q} --out {output.confidences:q} --fit {output.fit:q} 2>&1 | tee {log:q}"
