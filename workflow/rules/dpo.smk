rule align:
    input:
        manifest=lambda wc: round_pairs(wc, config["dpo"]["rounds"], "manifest.json"),
        pairs=lambda wc: ancient(round_pairs(wc, config["dpo"]["rounds"], "jsonl")),
        sft="results/{dataset}/{model}/sft/manifest.json",
        start=lambda wc: round_start(wc, config["dpo"]["rounds"]),
        base=base_weights,
    output:
        "results/{dataset}/{model}/{aligned}/manifest.json",
    log:
        "results/logs/align/{dataset}-{model}-{aligned}.log",
    benchmark:
        "results/benchmarks/align/{dataset}-{model}-{aligned}.tsv"
    priority: 10
    conda:
        "../../envs/gpu.yaml"
    threads: config["resources"]["threads"]
    resources:
        gpu=config["training"]["gpus"],
        gpus_wanted=config["training"]["gpus"],
        mem_mb=config["resources"]["mem_mb"],
        runtime=config["resources"]["runtime"],
    params:
        settings=stage("dpo"),
        rounds=config["dpo"]["rounds"],
        folder=lambda wc, output: Path(output[0]).parent,
        sft=lambda wc, input: Path(input.sft).parent,
        start=lambda wc, input: Path(input.start).parent,
        launch=launcher(),
    message:
        "Align the confidence LLM of {wildcards.model} on {wildcards.dataset} ({wildcards.aligned})"
    shell:
        "python -m orce.runtime.lease {resources.gpu}/{resources.gpus_wanted} -- {params.launch} orce dpo --settings {params.settings:q} --pairs {input.pairs} --sft {params.sft}"
        " --start {params.start} --out {params.folder} 2>&1 | tee {log}"


use rule align as align_round with:
    input:
        manifest=lambda wc: round_pairs(wc, int(wc.round), "manifest.json"),
        pairs=lambda wc: ancient(round_pairs(wc, int(wc.round), "jsonl")),
        sft="results/{dataset}/{model}/sft/manifest.json",
        start=lambda wc: round_start(wc, int(wc.round)),
        base=base_weights,
    output:
        "results/{dataset}/{model}/rounds/{aligned}/{round}/model/manifest.json",
    log:
        "results/logs/align/{dataset}-{model}-{aligned}-{round}.log",
    benchmark:
        "results/benchmarks/align/{dataset}-{model}-{aligned}-{round}.tsv"
