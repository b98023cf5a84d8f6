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


# Section 3.3: M candidate confidences for every RL pair. Round 1 samples from the warm start, for all rewards at once;
# a later round samples afresh from the model of the previous round.
use rule sft as candidates with:
    input:
        unpack(reads("candidates")),
    output:
        **READINGS.output("{round}candidates", "{round}shards/candidates"),
    log:
        READINGS.log("candidates/{dataset}-{model}-{round}all"),
    benchmark:
        READINGS.benchmark("candidates/{dataset}-{model}-{round}all")
    priority: 20
    resources:
        **on_gpus(CONFIG.gpus, "candidates"),
    params:
        **job("candidates"),
    message:
        "Sample candidate confidences of {wildcards.model} on {wildcards.dataset}{params.note}"


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


# The test: a confidence LLM states its confidence in the greedy answer to every test question.
use rule candidates as state with:
    input:
        unpack(reads("state")),
    output:
        **READINGS.output("{stated}/confidences", "shards/{stated}", manifest=False),
    log:
        READINGS.log("state/{dataset}-{model}-{stated}"),
    benchmark:
        READINGS.benchmark("state/{dataset}-{model}-{stated}")
    params:
        **job("state"),
    message:
        "State confidences: {wildcards.stated} for {wildcards.model} on {wildcards.dataset}{params.note}"
