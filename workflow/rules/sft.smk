rule warm_start:
    input:
        surrogate="results/{dataset}/{model}/surrogate.csv",
        prompts=ancient(["results/{dataset}/prompts/sft.jsonl"]),
        base=base_weights,
    output:
        "results/{dataset}/{model}/sft/manifest.json",
    log:
        "results/logs/warm_start/{dataset}-{model}.log",
    benchmark:
        "results/benchmarks/warm_start/{dataset}-{model}.tsv"
    priority: 30
    conda:
        "../../envs/gpu.yaml"
    threads: config["resources"]["threads"]
    resources:
        gpu=config["training"]["gpus"],
        gpus_wanted=config["training"]["gpus"],
        mem_mb=config["resources"]["mem_mb"],
        runtime=config["resources"]["runtime"],
    params:
        settings=stage("sft"),
        prompts=split_arguments("sft"),
        folder=lambda wc, output: Path(output[0]).parent,
        launch=launcher(),
        step="sft",
    message:
        "Warm-start the confidence LLM of {wildcards.model} on {wildcards.dataset} (SFT)"
    shell:
        "python -m orce.runtime.lease {resources.gpu}/{resources.gpus_wanted} -- {params.launch} orce {params.step} --settings {params.settings:q} --surrogate {input.surrogate}"
        " --prompts {params.prompts} --out {params.folder} 2>&1 | tee {log}"
