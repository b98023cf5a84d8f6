# Section 3.3: alignment by DPO with the warm start as its reference. Every round is a separate training.
rule dpo:
    input:
        unpack(reads("dpo")),
    output:
        "results/{dataset}/{model}/{aligned}/manifest.json",
    log:
        "results/logs/dpo/{dataset}-{model}-{aligned}.log",
    benchmark:
        "results/benchmarks/dpo/{dataset}-{model}-{aligned}.tsv"
    priority: 10
    threads: CONFIG.resources.threads
    resources:
        **TRAINING,
    params:
        **job("dpo"),
        folder=subpath(output[0], parent=True),
        launch=launcher,
    message:
        "Align the confidence LLM of {wildcards.model} on {wildcards.dataset} ({wildcards.aligned})"
    shell:
        logged(LEASE, TRAIN)
