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
        modules=argument(settings.agree, "dataset", "measured"),
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
        **inputs_and(settings.import_confidences, "dataset", "model", "external"),
    message:
        "Take the given confidences of {wildcards.external} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce import-confidences --settings {params.settings:q} {params.files:q} --out {output:q} 2>&1 | tee {log:q}"


rule calibrate:
    input:
        fit_prompts=partial(fit_prompts, rule="calibrate"),
        fit_confidences=reads("calibrate", "fit_confidences"),
        prompts="results/{dataset}/prompts/test.jsonl",
        confidences="results/{dataset}/{model}/{below}/confidences.jsonl",
    output:
        confidences="results/{dataset}/{model}/{below}+{calibration}/confidences.jsonl",
        fit="results/{dataset}/{model}/{below}+{calibration}/fit.json",
    log:
        "results/logs/calibrate/{dataset}-{model}-{below}-{calibration}.log",
    benchmark:
        "results/benchmarks/calibrate/{dataset}-{model}-{below}-{calibration}.tsv"
    priority: QUICK
    resources:
        **LIGHT,
    params:
        **inputs_and(settings.calibrate, "dataset", "model", "below", "calibration"),
    message:
        "Calibrate {wildcards.below} by {wildcards.calibration} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce calibrate --settings {params.settings:q} {params.files:q} --out {output.confidences:q} --fit {output.fit:q} 2>&1 | tee {log:q}"


rule combine:
    input:
        fit_prompts=partial(fit_prompts, rule="combine"),
        fit_confidences=reads("combine", "fit_confidences"),
        prompts="results/{dataset}/prompts/test.jsonl",
        confidences=reads("combine", "confidences"),
    output:
        confidences="results/{dataset}/{model}/{combined}/confidences.jsonl",
        fit="results/{dataset}/{model}/{combined}/fit.json",
    log:
        "results/logs/combine/{dataset}-{model}-{combined}.log",
    benchmark:
        "results/benchmarks/combine/{dataset}-{model}-{combined}.tsv"
    priority: QUICK
    resources:
        **LIGHT,
    params:
        **inputs_and(settings.combine, "dataset", "model", "combined"),
    message:
        "Combine {wildcards.combined} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce combine --settings {params.settings:q} {params.files:q} --out {output.confidences:q} --fit {output.fit:q} 2>&1 | tee {log:q}"
