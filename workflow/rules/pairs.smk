rule pairs:
    input:
        surrogate="results/{dataset}/{model}/surrogate.csv",
        prompts=ancient("results/{dataset}/prompts/rl.jsonl"),
        manifest="results/{dataset}/{model}/candidates.manifest.json",
        candidates=ancient("results/{dataset}/{model}/candidates.jsonl"),
    output:
        pairs="results/{dataset}/{model}/pairs/{reward}.jsonl",
        manifest="results/{dataset}/{model}/pairs/{reward}.manifest.json",
    log:
        "results/logs/pairs/{dataset}-{model}-{reward}.log",
    benchmark:
        "results/benchmarks/pairs/{dataset}-{model}-{reward}.tsv"
    conda:
        "../../envs/gpu.yaml"
    threads: 1
    resources:
        mem_mb=8000,
        runtime=30,
    params:
        settings=argument("pairs"),
        prompts=split_arguments("rl"),
        reward="{reward}",
        drawn_from="--from-reference",
    message:
        "Select pairs by reward for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce pairs --settings {params.settings:q} --reward {params.reward} --surrogate {input.surrogate}"
        " --prompts {params.prompts} --candidates {input.candidates} {params.drawn_from}"
        " --out {output.pairs} --manifest {output.manifest} 2>&1 | tee {log}"


use rule pairs as pairs_again with:
    input:
        surrogate="results/{dataset}/{model}/surrogate.csv",
        prompts=ancient("results/{dataset}/prompts/rl.jsonl"),
        manifest="results/{dataset}/{model}/rounds/{aligned}/{round}/candidates.manifest.json",
        candidates=ancient(
            "results/{dataset}/{model}/rounds/{aligned}/{round}/candidates.jsonl"
        ),
    output:
        pairs="results/{dataset}/{model}/rounds/{aligned}/{round}/pairs.jsonl",
        manifest="results/{dataset}/{model}/rounds/{aligned}/{round}/pairs.manifest.json",
    log:
        "results/logs/pairs/{dataset}-{model}-{aligned}-{round}.log",
    benchmark:
        "results/benchmarks/pairs/{dataset}-{model}-{aligned}-{round}.tsv"
    params:
        settings=argument("pairs"),
        prompts=split_arguments("rl"),
        reward=lambda wc: ALIGNED[wc.aligned],
        drawn_from="",
