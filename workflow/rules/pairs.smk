# Section 3.3: for each prompt, the candidates with the highest and the lowest reward.
rule pairs:
    input:
        unpack(reads("pairs")),
    output:
        pairs="results/{dataset}/{model}/{round}pairs/{reward}.jsonl",
        manifest="results/{dataset}/{model}/{round}pairs/{reward}.manifest.json",
    log:
        "results/logs/pairs/{dataset}-{model}-{round}{reward}.log",
    benchmark:
        "results/benchmarks/pairs/{dataset}-{model}-{round}{reward}.tsv"
    priority: QUICK
    resources:
        **ROOMY,
    params:
        **job("pairs"),
    message:
        "Select pairs by reward {wildcards.reward} for {wildcards.model} on {wildcards.dataset}"
    shell:
        logged(
            RUN,
            "{params.more:q} --out {output.pairs:q} --manifest {output.manifest:q}",
        )
