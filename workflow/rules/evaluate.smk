# The paper's metrics, and in extra.json what others report.
rule evaluate:
    input:
        confidences="results/{dataset}/{model}/{method}/confidences.jsonl",
        surrogate="results/{dataset}/{model}/surrogate.csv",
        manifests=sealed("evaluate", "manifests"),
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
        **inputs_and(of("evaluate"), "dataset", "model", "method"),
    message:
        "Evaluate {wildcards.method} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce evaluate --settings {params.settings:q} {params.files:q} --out {output.metrics:q} --extra {output.extra:q} 2>&1 | tee {log:q}"
