# Section 3.2: the warm start of the confidence LLM.
rule sft:
    input:
        unpack(reads("sft")),
    output:
        out="results/{dataset}/{model}/sft/manifest.json",
    log:
        "results/logs/sft/{dataset}-{model}.log",
    benchmark:
        "results/benchmarks/sft/{dataset}-{model}.tsv"
    priority: 30
    threads: CONFIG.resources.threads
    resources:
        **on_gpus(CONFIG.training.gpus, "sft"),
    params:
        **job("sft"),
    message:
        "Warm-start the confidence LLM of {wildcards.model} on {wildcards.dataset} (SFT)"
    shell:
        LEASED


# Baselines with their own training see the pairs of both SFT and RL, as ORCE does.
use rule sft as train with:
    input:
        unpack(reads("train")),
    output:
        out="results/{dataset}/{model}/{trained}/manifest.json",
    log:
        "results/logs/train/{dataset}-{model}-{trained}.log",
    benchmark:
        "results/benchmarks/train/{dataset}-{model}-{trained}.tsv"
    # After the warm start and before all that depends on it: the longest training must not run last and alone.
    priority: 25
    params:
        **job("train"),
    message:
        "Train {wildcards.trained} for {wildcards.model} on {wildcards.dataset}"


# Alignment by DPO with the warm start as its reference. Every round is a separate training.
use rule sft as dpo with:
    input:
        unpack(reads("dpo")),
    output:
        out="results/{dataset}/{model}/{aligned}/manifest.json",
    log:
        "results/logs/dpo/{dataset}-{model}-{aligned}.log",
    benchmark:
        "results/benchmarks/dpo/{dataset}-{model}-{aligned}.tsv"
    priority: 10
    params:
        **job("dpo"),
    message:
        "Align the confidence LLM of {wildcards.model} on {wildcards.dataset} ({wildcards.aligned})"
