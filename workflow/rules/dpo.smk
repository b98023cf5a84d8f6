# Section 3.3: alignment by DPO with the warm start as its reference. Every round is a separate training.
rule dpo:
    input:
        pairs=reads("dpo", "pairs"),
        manifest=sealed("dpo", "pairs"),
        sft="results/{dataset}/{model}/sft/manifest.json",
        start=reads("dpo", "start"),
        base=base("dpo"),
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
        settings=argument(of("dpo"), "dataset", "model"),
        folder=subpath(output[0], parent=True),
        sft=subpath(input.sft, parent=True),
        start=lambda wc, input: str(Path(input.start[0]).parent),
        launch=launcher,
    message:
        "Align the confidence LLM of {wildcards.model} on {wildcards.dataset} ({wildcards.aligned})"
    shell:
        LEASE + "{params.launch:q} orce dpo"
        " --settings {params.settings:q} --pairs {input.pairs:q} --sft {params.sft:q} --start {params.start:q}"
        " --out {params.folder:q} 2>&1 | tee {log:q}"
