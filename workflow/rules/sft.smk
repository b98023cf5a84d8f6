# Section 3.2: the warm start of the confidence LLM.
rule sft:
    input:
        surrogate="results/{dataset}/{model}/surrogate.csv",
        prompts=["results/{dataset}/prompts/sft.jsonl"],
        base=base("sft"),
    output:
        "results/{dataset}/{model}/sft/manifest.json",
    log:
        "results/logs/sft/{dataset}-{model}.log",
    benchmark:
        "results/benchmarks/sft/{dataset}-{model}.tsv"
    priority: 30
    threads: CONFIG.resources.threads
    resources:
        **TRAINING,
    params:
        **inputs_and(of("sft"), "dataset", "model"),
        step="sft",
        folder=subpath(output[0], parent=True),
        launch=launcher,
    message:
        "Warm-start the confidence LLM of {wildcards.model} on {wildcards.dataset} (SFT)"
    shell:
        LEASE
        + "{params.launch:q} orce {params.step:q} --settings {params.settings:q} {params.files:q} --out {params.folder:q} 2>&1 | tee {log:q}"


# Baselines with their own training see the pairs of both SFT and RL, as ORCE does.
use rule sft as train with:
    input:
        surrogate="results/{dataset}/{model}/surrogate.csv",
        prompts=frozen(settings.training_splits, "trained"),
        base=base("train"),
    output:
        "results/{dataset}/{model}/{trained}/manifest.json",
    log:
        "results/logs/train/{dataset}-{model}-{trained}.log",
    benchmark:
        "results/benchmarks/train/{dataset}-{model}-{trained}.tsv"
    # After the warm start and before all that depends on it: the longest training must not run last and alone.
    priority: 25
    params:
        **inputs_and(of("train"), "dataset", "model", "trained"),
        step="train",
        folder=subpath(output[0], parent=True),
        launch=launcher,
    message:
        "Train {wildcards.trained} for {wildcards.model} on {wildcards.dataset}"
