rule candidates:
    input:
        request="results/{dataset}/{model}/requests/candidates.json",
        surrogate="results/{dataset}/{model}/surrogate.csv",
        prompts="results/{dataset}/prompts/rl.manifest.json",
        weights="results/{dataset}/{model}/sft/manifest.json",
        read=served("candidates"),
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
    threads: 1
    resources:
        mem_mb=8000,
        runtime=30,
    params:
        shards=config["confidence"]["shards"],
    message:
        "Gather the candidate confidences of {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce candidates --request {input.request} --shards {params.shards}"
        " --out {output.candidates} --manifest {output.manifest} 2>&1 | tee {log}"


# Later rounds draw afresh from the model that the round before them left.
use rule candidates as candidates_again with:
    input:
        request="results/{dataset}/{model}/requests/candidates-{aligned}-{round}.json",
        surrogate="results/{dataset}/{model}/surrogate.csv",
        prompts="results/{dataset}/prompts/rl.manifest.json",
        weights=lambda wc: round_start(wc, int(wc.round)),
        read=served("candidates-{aligned}-{round}"),
    output:
        candidates="results/{dataset}/{model}/rounds/{aligned}/{round}/candidates.jsonl",
        manifest="results/{dataset}/{model}/rounds/{aligned}/{round}/candidates.manifest.json",
    log:
        "results/logs/candidates/{dataset}-{model}-{aligned}-{round}.log",
    benchmark:
        "results/benchmarks/candidates/{dataset}-{model}-{aligned}-{round}.tsv"
