# Settings of the alignment, chosen on the validation split and never on the test: `snakemake -- tune`.
# A trial trains on the pairs of the first round.
rule tune_dpo:
    input:
        pairs="results/{dataset}/{model}/pairs/{reward}.jsonl",
        sealed="results/{dataset}/{model}/pairs/{reward}.manifest.json",
        sft="results/{dataset}/{model}/sft/manifest.json",
        base=base_llm,
    output:
        "results/{dataset}/{model}/tune/{reward}/{trial}/manifest.json",
    log:
        "results/logs/tune_dpo/{dataset}-{model}-{reward}-{trial}.log",
    benchmark:
        "results/benchmarks/tune_dpo/{dataset}-{model}-{reward}-{trial}.tsv"
    priority: 10
    threads: CONFIG.resources.threads
    resources:
        gpu=CONFIG.training.gpus,
        gpus_wanted=CONFIG.training.gpus,
        mem_mb=CONFIG.resources.mem_mb,
        runtime=minutes,
    params:
        settings=settings_of("tune_dpo", "{dataset}", "{model}", "{trial}"),
        launcher=LAUNCHER,
    message:
        "Try {wildcards.trial} for {wildcards.model} on {wildcards.dataset} ({wildcards.reward})"
    shell:
        "python -m orce.runtime.lease {resources.gpu}/{resources.gpus_wanted} --"
        " python {params.launcher} -m orce dpo --settings {params.settings:q} --pairs {input.pairs}"
        " --sft {input.sft} --start {input.sft} --out {output} 2>&1 | tee {log}"


rule tune_state:
    input:
        prompts="results/{dataset}/prompts/validation.jsonl",
        samples="results/{dataset}/{model}/samples.jsonl",
        sealed="results/{dataset}/{model}/samples.manifest.json",
        weights="results/{dataset}/{model}/tune/{reward}/{trial}/manifest.json",
        base=base_llm,
    output:
        "results/{dataset}/{model}/tune/{reward}/{trial}.jsonl",
    log:
        "results/logs/tune_state/{dataset}-{model}-{reward}-{trial}.log",
    benchmark:
        "results/benchmarks/tune_state/{dataset}-{model}-{reward}-{trial}.tsv"
    priority: 20
    threads: CONFIG.resources.threads
    resources:
        gpu=CONFIG.gpus,
        gpus_wanted=CONFIG.gpus,
        mem_mb=CONFIG.resources.mem_mb,
        runtime=minutes,
    params:
        settings=settings_of("tune_state", "{dataset}", "{model}"),
    message:
        "State confidences on the validation split: {wildcards.trial} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce.runtime.lease {resources.gpu}/{resources.gpus_wanted} --"
        " python -m orce state --settings {params.settings:q} --prompts {input.prompts} --samples {input.samples}"
        " --weights {input.weights} --split validation --out {output} 2>&1 | tee {log}"


# One setting for the run: the best on average over the cells of its tables in which the paper's reward is trained.
rule tune:
    input:
        trials,
    output:
        "results/tuned.yaml",
    log:
        "results/logs/tune/tune.log",
    benchmark:
        "results/benchmarks/tune/tune.tsv"
    priority: QUICK
    localrule: True
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        settings=settings_of("tune"),
    message:
        "Choose the settings of dpo"
    shell:
        "python -m orce tune --settings {params.settings:q} --confidences {input} --out {output} 2>&1 | tee {log}"
