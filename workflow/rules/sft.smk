# Section 3.2: the warm start of the confidence LLM.
rule sft:
    input:
        unpack(reads("sft")),
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
        **job("sft"),
        folder=subpath(output[0], parent=True),
        launch=launcher,
    message:
        "Warm-start the confidence LLM of {wildcards.model} on {wildcards.dataset} (SFT)"
    shell:
        logged(LEASE, TRAIN)


# Baselines with their own training see the pairs of both SFT and RL, as ORCE does.
use rule sft as train with:
    input:
        unpack(reads("train")),
    output:
        "results/{dataset}/{model}/{trained}/manifest.json",
    log:
        "results/logs/train/{dataset}-{model}-{trained}.log",
    benchmark:
        "results/benchmarks/train/{dataset}-{model}-{trained}.tsv"
    # After the warm start and before all that depends on it: the longest training must not run last and alone.
    priority: 25
    params:
        **job("train"),
        folder=subpath(output[0], parent=True),
        launch=launcher,
    message:
        "Train {wildcards.trained} for {wildcards.model} on {wildcards.dataset}"
