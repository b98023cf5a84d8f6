# Section 4: every method makes METHOD/confidences.jsonl. The kind of the method says by which rule.
# A confidence LLM states its confidence in the greedy answer to every test question.
rule state:
    input:
        prompts="results/{dataset}/prompts/test.jsonl",
        samples="results/{dataset}/{model}/samples.jsonl",
        sealed="results/{dataset}/{model}/samples.manifest.json",
        weights=lambda wildcards: confidence_llms(wildcards.dataset, wildcards.model, wildcards.stated),
        base=base_llm_of_row,
    output:
        "results/{dataset}/{model}/{shard}{stated}/confidences.jsonl",
    log:
        "results/logs/state/{shard}{dataset}-{model}-{stated}.log",
    benchmark:
        "results/benchmarks/state/{shard}{dataset}-{model}-{stated}.tsv"
    wildcard_constraints:
        shard=targets.shards(CONFIG.confidence.shards),
    priority: 20
    threads: CONFIG.resources.threads
    resources:
        gpu=CONFIG.gpus,
        gpus_wanted=CONFIG.gpus,
        mem_mb=CONFIG.resources.mem_mb,
        runtime=minutes,
    params:
        settings=settings_of("state", "{dataset}", "{model}", "{stated}"),
        shard=shard_of(CONFIG.confidence.shards),
        # Shards keep all that was read, and joining them reads one value out.
        readout=CONFIG.evaluation.readout if CONFIG.confidence.shards == 1 else "",
    message:
        "State confidences: {wildcards.stated} for {wildcards.model} on {wildcards.dataset} {wildcards.shard}"
    shell:
        "python -m orce.runtime.lease {resources.gpu}/{resources.gpus_wanted} --"
        " python -m orce state --settings {params.settings:q} --prompts {input.prompts} --samples {input.samples}"
        " --weights {input.weights} --shard {params.shard} --readout {params.readout}"
        " --out {output} 2>&1 | tee {log}"


# Prompted baselines: the answer LLM gives answer and confidence together, or is asked about its own greedy answer.
rule elicit:
    input:
        unpack(asked_samples),
        prompts="results/{dataset}/prompts/test.jsonl",
        base=answer_llm,
    output:
        "results/{dataset}/{model}/{shard}{prompted}/confidences.jsonl",
    log:
        "results/logs/elicit/{shard}{dataset}-{model}-{prompted}.log",
    benchmark:
        "results/benchmarks/elicit/{shard}{dataset}-{model}-{prompted}.tsv"
    wildcard_constraints:
        shard=targets.shards(CONFIG.answers.shards),
    priority: 20
    threads: CONFIG.resources.threads
    resources:
        gpu=gpus_to_answer,
        gpus_wanted=gpus_to_answer,
        mem_mb=CONFIG.resources.mem_mb,
        runtime=minutes,
    params:
        settings=settings_of("elicit", "{dataset}", "{model}", "{prompted}"),
        shard=shard_of(CONFIG.answers.shards),
    message:
        "Elicit confidences: {wildcards.prompted} by {wildcards.model} on {wildcards.dataset} {wildcards.shard}"
    shell:
        "python -m orce.runtime.lease {resources.gpu}/{resources.gpus_wanted} --"
        " python -m orce elicit --settings {params.settings:q} --prompts {input.prompts} --samples {input.samples}"
        " --shard {params.shard} --out {output} 2>&1 | tee {log}"


# The answer LLM's own probabilities.
rule likelihoods:
    input:
        prompts="results/{dataset}/prompts/test.jsonl",
        samples="results/{dataset}/{model}/samples.jsonl",
        sealed="results/{dataset}/{model}/samples.manifest.json",
        base=answer_llm,
    output:
        "results/{dataset}/{model}/{shard}{scored}.jsonl",
    log:
        "results/logs/{scored}/{shard}{dataset}-{model}.log",
    benchmark:
        "results/benchmarks/{scored}/{shard}{dataset}-{model}.tsv"
    wildcard_constraints:
        shard=targets.shards(CONFIG.confidence.shards),
    priority: 20
    threads: CONFIG.resources.threads
    resources:
        gpu=CONFIG.gpus,
        gpus_wanted=CONFIG.gpus,
        mem_mb=CONFIG.resources.mem_mb,
        runtime=minutes,
    params:
        settings=settings_of("likelihoods", "{dataset}", "{model}", "{scored}"),
        shard=shard_of(CONFIG.confidence.shards),
    message:
        "Read the {wildcards.scored} of {wildcards.model} on {wildcards.dataset} {wildcards.shard}"
    shell:
        "python -m orce.runtime.lease {resources.gpu}/{resources.gpus_wanted} --"
        " python -m orce likelihoods --settings {params.settings:q} --prompts {input.prompts}"
        " --samples {input.samples} --shard {params.shard} --out {output} 2>&1 | tee {log}"


# Measures of samples and likelihoods.
rule derive:
    input:
        prompts="results/{dataset}/prompts/test.jsonl",
        samples="results/{dataset}/{model}/samples.jsonl",
        sealed="results/{dataset}/{model}/samples.manifest.json",
        likelihoods=read_likelihoods("likelihoods"),
        sample_likelihoods=read_likelihoods("sample_likelihoods"),
    output:
        "results/{dataset}/{model}/{measured}/confidences.jsonl",
    log:
        "results/logs/derive/{dataset}-{model}-{measured}.log",
    benchmark:
        "results/benchmarks/derive/{dataset}-{model}-{measured}.tsv"
    priority: QUICK
    localrule: True
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        task=lambda wildcards: CONFIG.datasets[wildcards.dataset].task,
        method=lambda wildcards: METHODS.module(wildcards.measured),
        # With the digests of a task and a method of a user's own.
        settings=lambda wildcards: as_json(
            {"task": CONFIG.datasets[wildcards.dataset].task, "method": METHODS.module(wildcards.measured)}
        ),
    message:
        "Derive {wildcards.measured} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce derive --task {params.task:q} --method {params.method:q} --prompts {input.prompts}"
        " --samples {input.samples} --likelihoods {input.likelihoods}"
        " --sample-likelihoods {input.sample_likelihoods} --out {output} 2>&1 | tee {log}"


# Confidences of a method that ran elsewhere.
rule import_confidences:
    input:
        prompts="results/{dataset}/prompts/test.jsonl",
        samples="results/{dataset}/{model}/samples.jsonl",
        sealed="results/{dataset}/{model}/samples.manifest.json",
    output:
        "results/{dataset}/{model}/{external}/confidences.jsonl",
    log:
        "results/logs/import_confidences/{dataset}-{model}-{external}.log",
    benchmark:
        "results/benchmarks/import_confidences/{dataset}-{model}-{external}.tsv"
    priority: QUICK
    localrule: True
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        settings=settings_of("import_confidences", "{dataset}", "{model}", "{external}"),
    message:
        "Take the given confidences of {wildcards.external} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce import-confidences --settings {params.settings:q} --prompts {input.prompts}"
        " --samples {input.samples} --out {output} 2>&1 | tee {log}"


# Hidden states of the answer LLM or of the untrained confidence LLM, which probes read.
rule states:
    input:
        prompts=encoded_prompts,
        samples="results/{dataset}/{model}/samples.jsonl",
        sealed="results/{dataset}/{model}/samples.manifest.json",
        surrogate="results/{dataset}/{model}/surrogate.csv",
        base=lambda wildcards: base_llm(wildcards) if wildcards.states == "judge" else answer_llm(wildcards),
    output:
        "results/{dataset}/{model}/{shard}states/{states}.jsonl",
    log:
        "results/logs/states/{shard}{dataset}-{model}-{states}.log",
    benchmark:
        "results/benchmarks/states/{shard}{dataset}-{model}-{states}.tsv"
    wildcard_constraints:
        shard=targets.shards(CONFIG.confidence.shards),
    priority: 20
    threads: CONFIG.resources.threads
    resources:
        gpu=CONFIG.gpus,
        gpus_wanted=CONFIG.gpus,
        mem_mb=CONFIG.resources.mem_mb,
        runtime=minutes,
    params:
        settings=settings_of("states", "{dataset}", "{model}", "{states}"),
        shard=shard_of(CONFIG.confidence.shards),
    message:
        "Read hidden states ({wildcards.states}) for {wildcards.model} on {wildcards.dataset} {wildcards.shard}"
    shell:
        "python -m orce.runtime.lease {resources.gpu}/{resources.gpus_wanted} --"
        " python -m orce states --settings {params.settings:q} --prompts {input.prompts} --samples {input.samples}"
        " --surrogate {input.surrogate} --shard {params.shard} --out {output} 2>&1 | tee {log}"


# What is fitted, never on a test answer: METHOD+CALIBRATION on the confidences of a method,
rule calibrate:
    input:
        prompts="results/{dataset}/prompts/test.jsonl",
        confidences="results/{dataset}/{model}/{below}/confidences.jsonl",
        fit_on=of_calibration_set("results/{dataset}/prompts/test.jsonl"),
        fit_confidences=of_calibration_set("results/{dataset}/{model}/{below}/confidences.jsonl"),
    output:
        out="results/{dataset}/{model}/{below}+{calibration}/confidences.jsonl",
        fit="results/{dataset}/{model}/{below}+{calibration}/fit.json",
    log:
        "results/logs/calibrate/{dataset}-{model}-{below}+{calibration}.log",
    benchmark:
        "results/benchmarks/calibrate/{dataset}-{model}-{below}+{calibration}.tsv"
    priority: QUICK
    localrule: True
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        settings=settings_of("fit", "{dataset}", "{model}", "{below}+{calibration}"),
    message:
        "Fit {wildcards.calibration} on {wildcards.below} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce fit --settings {params.settings:q} --prompts {input.prompts} --fit-on {input.fit_on}"
        " --confidences {input.confidences} --fit-confidences {input.fit_confidences}"
        " --out {output.out} --fit {output.fit} 2>&1 | tee {log}"


# a combination on the confidences of several,
rule combine:
    input:
        unpack(fitted_on),
        prompts="results/{dataset}/prompts/test.jsonl",
        confidences=members,
    output:
        out="results/{dataset}/{model}/{combined}/confidences.jsonl",
        fit="results/{dataset}/{model}/{combined}/fit.json",
    log:
        "results/logs/combine/{dataset}-{model}-{combined}.log",
    benchmark:
        "results/benchmarks/combine/{dataset}-{model}-{combined}.tsv"
    priority: QUICK
    localrule: True
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        settings=settings_of("fit", "{dataset}", "{model}", "{combined}"),
    message:
        "Combine {wildcards.combined} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce fit --settings {params.settings:q} --prompts {input.prompts} --fit-on {input.fit_on}"
        " --confidences {input.confidences} --fit-confidences {input.fit_confidences}"
        " --out {output.out} --fit {output.fit} 2>&1 | tee {log}"


# and a probe on hidden states of training questions, which may be another data set's.
rule probe:
    input:
        prompts="results/{dataset}/prompts/test.jsonl",
        samples="results/{dataset}/{model}/samples.jsonl",
        sealed="results/{dataset}/{model}/samples.manifest.json",
        states=lambda wildcards: hidden_states(wildcards.dataset, wildcards.model, wildcards.probe),
        fit_on=lambda wildcards: training_prompts(wildcards.dataset, METHODS.get(wildcards.probe).trained_on),
        fit_states=lambda wildcards: hidden_states(trained_on(wildcards), wildcards.model, wildcards.probe),
        surrogate=lambda wildcards: f"results/{trained_on(wildcards)}/{wildcards.model}/surrogate.csv",
    output:
        out="results/{dataset}/{model}/{probe}/confidences.jsonl",
        fit="results/{dataset}/{model}/{probe}/fit.json",
    log:
        "results/logs/probe/{dataset}-{model}-{probe}.log",
    benchmark:
        "results/benchmarks/probe/{dataset}-{model}-{probe}.tsv"
    priority: QUICK
    localrule: True
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        settings=settings_of("fit", "{dataset}", "{model}", "{probe}"),
    message:
        "Fit {wildcards.probe} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce fit --settings {params.settings:q} --prompts {input.prompts} --fit-on {input.fit_on}"
        " --states {input.states} --fit-states {input.fit_states} --samples {input.samples}"
        " --surrogate {input.surrogate} --out {output.out} --fit {output.fit} 2>&1 | tee {log}"
