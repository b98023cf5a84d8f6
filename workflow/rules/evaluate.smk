# The paper's metrics, and in extra.json what others report.
rule evaluate:
    input:
        unpack(reads("evaluate")),
    output:
        metrics="results/{dataset}/{model}/{method}/metrics.json",
        extra="results/{dataset}/{model}/{method}/extra.json",
    log:
        "results/logs/evaluate/{dataset}-{model}-{method}.log",
    benchmark:
        "results/benchmarks/evaluate/{dataset}-{model}-{method}.tsv"
    priority: QUICK
    resources:
        **ROOMY,
    params:
        **job("evaluate"),
    message:
        "Evaluate {wildcards.method} for {wildcards.model} on {wildcards.dataset}"
    shell:
        logged(RUN, "--out {output.metrics:q} --extra {output.extra:q}")
