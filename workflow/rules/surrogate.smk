# Section 3.1: kappa, the share of right answers, and the answer that the confidence LLM sees.
rule surrogate:
    input:
        samples="results/{dataset}/{model}/samples.jsonl",
        manifest="results/{dataset}/{model}/samples.manifest.json",
    output:
        "results/{dataset}/{model}/surrogate.csv",
    log:
        "results/logs/surrogate/{dataset}-{model}.log",
    benchmark:
        "results/benchmarks/surrogate/{dataset}-{model}.tsv"
    priority: QUICK
    resources:
        **LIGHT,
    params:
        files=files,
        seed=seed_and_flag,
    message:
        "Estimate kappa of {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce surrogate {params.files:q} --seed {params.seed:q} --out {output:q} 2>&1 | tee {log:q}"
