# Section 3.1: kappa, the share of right answers, and the answer that the confidence LLM sees.
rule surrogate:
    input:
        unpack(reads("surrogate")),
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
        **job("surrogate"),
    message:
        "Estimate kappa of {wildcards.model} on {wildcards.dataset}"
    shell:
        logged(RUN, "{params.more:q} --out {output:q}")
