# The paper's metrics, and in extra.json what others report.
rule evaluate:
    input:
        confidences="results/{dataset}/{model}/{method}/confidences.jsonl",
        surrogate="results/{dataset}/{model}/surrogate.csv",
        manifests=made_from,
    output:
        "results/{dataset}/{model}/{method}/metrics.json",
    log:
        "results/logs/evaluate/{dataset}-{model}-{method}.log",
    benchmark:
        "results/benchmarks/evaluate/{dataset}-{model}-{method}.tsv"
    priority: QUICK
    threads: 1
    resources:
        mem_mb=8000,
        runtime=30,
    params:
        settings=argument(settings.evaluate, "dataset", "model", "method"),
    message:
        "Evaluate {wildcards.method} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce evaluate --settings {params.settings:q} --confidences {input.confidences:q}"
        " --surrogate {input.surrogate:q} --manifests {input.manifests:q} --out {output:q} 2>&1 | tee {log:q}"


rule extra:
    input:
        "results/{dataset}/{model}/{method}/confidences.jsonl",
    output:
        "results/{dataset}/{model}/{method}/extra.json",
    log:
        "results/logs/extra/{dataset}-{model}-{method}.log",
    benchmark:
        "results/benchmarks/extra/{dataset}-{model}-{method}.tsv"
    priority: QUICK
    threads: 1
    resources:
        mem_mb=8000,
        runtime=30,
    params:
        settings=argument(settings.evaluate, "dataset", "model", "method"),
    message:
        "Compute the extra metrics of {wildcards.method} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce extra --settings {params.settings:q} --confidences {input:q} --out {output:q} 2>&1 | tee {log:q}"
