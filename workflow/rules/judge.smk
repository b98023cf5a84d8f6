# Sections 3.2 and 3.3: the confidence LLM learns to state kappa, and its statements are put into order.
# Section 3.2: the warm start.
rule sft:
    input:
        surrogate="results/{dataset}/{model}/surrogate.csv",
        prompts="results/{dataset}/prompts/sft.jsonl",
        base=base_llm,
    output:
        "results/{dataset}/{model}/sft/manifest.json",
    log:
        "results/logs/sft/{dataset}-{model}.log",
    benchmark:
        "results/benchmarks/sft/{dataset}-{model}.tsv"
    priority: 30
    threads: CONFIG.resources.threads
    resources:
        gpu=CONFIG.training.gpus,
        gpus_wanted=CONFIG.training.gpus,
        mem_mb=CONFIG.resources.mem_mb,
        runtime=minutes,
    params:
        settings=settings_of("sft", "{dataset}", "{model}"),
        launcher=LAUNCHER,
    message:
        "Warm-start the confidence LLM of {wildcards.model} on {wildcards.dataset} (SFT)"
    shell:
        "python -m orce.runtime.lease {resources.gpu}/{resources.gpus_wanted} --"
        " python {params.launcher} -m orce sft --settings {params.settings:q} --surrogate {input.surrogate}"
        " --prompts {input.prompts} --out {output} 2>&1 | tee {log}"


# Baselines with their own training. After the warm start and before all that depends on it: the longest training must not
# run last and alone.
rule train:
    input:
        surrogate="results/{dataset}/{model}/surrogate.csv",
        prompts=lambda wildcards: prompts_of(wildcards.dataset, METHODS.get(wildcards.trained).trained_on),
        base=base_llm,
    output:
        "results/{dataset}/{model}/{trained}/manifest.json",
    log:
        "results/logs/train/{dataset}-{model}-{trained}.log",
    benchmark:
        "results/benchmarks/train/{dataset}-{model}-{trained}.tsv"
    priority: 25
    threads: CONFIG.resources.threads
    resources:
        gpu=CONFIG.training.gpus,
        gpus_wanted=CONFIG.training.gpus,
        mem_mb=CONFIG.resources.mem_mb,
        runtime=minutes,
    params:
        settings=settings_of("train", "{dataset}", "{model}", "{trained}"),
        launcher=LAUNCHER,
    message:
        "Train {wildcards.trained} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce.runtime.lease {resources.gpu}/{resources.gpus_wanted} --"
        " python {params.launcher} -m orce train --settings {params.settings:q} --surrogate {input.surrogate}"
        " --prompts {input.prompts} --out {output} 2>&1 | tee {log}"


# Section 3.3: M candidate confidences for every RL pair. {round} is empty, or round2/REWARD/ and so on.
rule candidates:
    input:
        surrogate="results/{dataset}/{model}/surrogate.csv",
        prompts="results/{dataset}/prompts/rl.jsonl",
        weights=start_of_round,
        base=base_llm,
    output:
        out="results/{dataset}/{model}/{shard}{round}candidates.jsonl",
        manifest="results/{dataset}/{model}/{shard}{round}candidates.manifest.json",
    log:
        "results/logs/candidates/{shard}{dataset}-{model}-{round}all.log",
    benchmark:
        "results/benchmarks/candidates/{shard}{dataset}-{model}-{round}all.tsv"
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
        settings=settings_of("candidates", "{dataset}", "{model}"),
        shard=shard_of(CONFIG.confidence.shards),
        reference=lambda wildcards: "--keep-reference" if KEEPS_REFERENCE and not wildcards.round else "",
    message:
        "Sample candidate confidences of {wildcards.model} on {wildcards.dataset} {wildcards.shard}"
    shell:
        "python -m orce.runtime.lease {resources.gpu}/{resources.gpus_wanted} --"
        " python -m orce candidates --settings {params.settings:q} --surrogate {input.surrogate}"
        " --prompts {input.prompts} --weights {input.weights} --shard {params.shard} {params.reference}"
        " --out {output.out} 2>&1 | tee {log}"


# For each prompt, the candidates with the highest and the lowest reward.
rule pairs:
    input:
        surrogate="results/{dataset}/{model}/surrogate.csv",
        prompts="results/{dataset}/prompts/rl.jsonl",
        candidates="results/{dataset}/{model}/{round}candidates.jsonl",
        sealed="results/{dataset}/{model}/{round}candidates.manifest.json",
        reference=first_candidates,
    output:
        out="results/{dataset}/{model}/{round}pairs/{reward}.jsonl",
        manifest="results/{dataset}/{model}/{round}pairs/{reward}.manifest.json",
    log:
        "results/logs/pairs/{dataset}-{model}-{round}{reward}.log",
    benchmark:
        "results/benchmarks/pairs/{dataset}-{model}-{round}{reward}.tsv"
    priority: QUICK
    localrule: True
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        settings=settings_of("pairs", "{dataset}", "{model}", "{reward}"),
        # Only the candidates of the first round come from DPO's reference, the warm start.
        reference=lambda wildcards: "" if wildcards.round else "--from-reference",
    message:
        "Select pairs by reward {wildcards.reward} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce pairs --settings {params.settings:q} --surrogate {input.surrogate} --prompts {input.prompts}"
        " --candidates {input.candidates} {params.reference} --reference {input.reference}"
        " --out {output.out} --manifest {output.manifest} 2>&1 | tee {log}"


# Alignment by DPO with the warm start as its reference. Every round is a separate training.
rule dpo:
    input:
        unpack(round_of_alignment),
        sft="results/{dataset}/{model}/sft/manifest.json",
        base=base_llm,
    output:
        "results/{dataset}/{model}/{aligned}/manifest.json",
    log:
        "results/logs/dpo/{dataset}-{model}-{aligned}.log",
    benchmark:
        "results/benchmarks/dpo/{dataset}-{model}-{aligned}.tsv"
    priority: 10
    threads: CONFIG.resources.threads
    resources:
        gpu=CONFIG.training.gpus,
        gpus_wanted=CONFIG.training.gpus,
        mem_mb=CONFIG.resources.mem_mb,
        runtime=minutes,
    params:
        settings=settings_of("dpo", "{dataset}", "{model}"),
        launcher=LAUNCHER,
    message:
        "Align the confidence LLM of {wildcards.model} on {wildcards.dataset} ({wildcards.aligned})"
    shell:
        "python -m orce.runtime.lease {resources.gpu}/{resources.gpus_wanted} --"
        " python {params.launcher} -m orce dpo --settings {params.settings:q} --pairs {input.pairs}"
        " --sft {input.sft} --start {input.start} --out {output} 2>&1 | tee {log}"
