rule candidates:
    input:
        surrogate="results/{dataset}/{model}/surrogate.csv",
        prompts=ancient("results/{dataset}/prompts/rl.jsonl"),
        weights="results/{dataset}/{model}/sft/manifest.json",
        base=base_weights,
    output:
        candidates="results/{dataset}/{model}/candidates.jsonl",
        manifest="results/{dataset}/{model}/candidates.manifest.json",
    log:
        "results/logs/candidates/{dataset}-{model}.log",
    benchmark:
        "results/benchmarks/candidates/{dataset}-{model}.tsv"
    priority: 20
    conda:
        "../../envs/gpu.yaml"
    threads: config["resources"]["threads"]
    resources:
        gpu=config["gpus"],
        mem_mb=config["resources"]["mem_mb"],
        runtime=config["resources"]["runtime"],
    params:
        settings=argument("candidates"),
        prompts=split_arguments("rl"),
        weights=lambda wc, input: Path(input.weights).parent,
    message:
        "Draw candidate confidences of {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce.lease {resources.gpu} -- python -m orce candidates --settings {params.settings:q} --surrogate {input.surrogate}"
        " --prompts {params.prompts} --weights {params.weights}"
        " --out {output.candidates} --manifest {output.manifest} 2>&1 | tee {log}"


# Later rounds draw afresh from the model that the round before them left.
use rule candidates as candidates_again with:
    input:
        surrogate="results/{dataset}/{model}/surrogate.csv",
        prompts=ancient("results/{dataset}/prompts/rl.jsonl"),
        weights=lambda wc: round_start(wc, int(wc.round)),
        base=base_weights,
    output:
        candidates="results/{dataset}/{model}/rounds/{aligned}/{round}/candidates.jsonl",
        manifest="results/{dataset}/{model}/rounds/{aligned}/{round}/candidates.manifest.json",
    log:
        "results/logs/candidates/{dataset}-{model}-{aligned}-{round}.log",
    benchmark:
        "results/benchmarks/candidates/{dataset}-{model}-{aligned}-{round}.tsv"
