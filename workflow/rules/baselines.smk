# What the field compares with, for the same greedy answers: the answer LLM's own probabilities, measures of its samples,
# calibrations on top of any method, and combinations of several.
rule likelihoods:
    input:
        unpack(reads("likelihoods")),
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
        **job("likelihoods"),
    message:
        "Read the {wildcards.scored} of {wildcards.model} on {wildcards.dataset}{params.note}"
    shell:
        logged(LEASE, RUN, "{params.shard:q} --out {output.out:q}")


rule derive:
    input:
        unpack(reads("derive")),
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
        **job("derive"),
        modules=argument(settings.derive, "dataset", "measured"),
    message:
        "Derive {wildcards.measured} for {wildcards.model} on {wildcards.dataset}"
    shell:
        logged(RUN, "{params.more:q} --out {output:q}")


# Confidences of a method that ran elsewhere.
rule import_confidences:
    input:
        unpack(reads("import_confidences")),
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
        **job("import_confidences"),
    message:
        "Take the given confidences of {wildcards.external} for {wildcards.model} on {wildcards.dataset}"
    shell:
        logged(RUN, "--out {output:q}")


# Calibrations, combinations and probes: never fitted on a test answer.
rule fit:
    input:
        unpack(reads("fit")),
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
        **job("fit"),
    message:
        "Fit {wildcards.fitted} for {wildcards.model} on {wildcards.dataset}"
    shell:
        logged(RUN, "--out {output.confidences:q} --fit {output.fit:q}")
