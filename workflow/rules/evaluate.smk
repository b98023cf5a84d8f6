rule state_confidence:
    input:
        request="results/{dataset}/{model}/requests/{stated}.json",
        prompts="results/{dataset}/prompts/test.manifest.json",
        samples="results/{dataset}/{model}/samples.manifest.json",
        weights=confidence_weights,
        served=served("{stated}"),
    output:
        "results/{dataset}/{model}/{stated}/confidences.jsonl",
    log:
        "results/logs/state_confidence/{dataset}-{model}-{stated}.log",
    benchmark:
        "results/benchmarks/state_confidence/{dataset}-{model}-{stated}.tsv"
    conda:
        "../../envs/gpu.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        readout=config["evaluation"]["readout"],
        shards=config["confidence"]["shards"],
    message:
        "Gather confidences: {wildcards.stated} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce gather-confidences --request {input.request} --shards {params.shards}"
        " --readout {params.readout} --out {output} 2>&1 | tee {log}"


use rule state_confidence as ask_confidence with:
    input:
        request="results/{dataset}/{model}/requests/{prompted}.json",
        prompts="results/{dataset}/prompts/test.manifest.json",
        served=served("{prompted}"),
    output:
        "results/{dataset}/{model}/{prompted}/confidences.jsonl",
    log:
        "results/logs/ask_confidence/{dataset}-{model}-{prompted}.log",
    benchmark:
        "results/benchmarks/ask_confidence/{dataset}-{model}-{prompted}.tsv"
    params:
        readout="stated",
        shards=config["answers"]["shards"],
    message:
        "Gather confidences: {wildcards.prompted} by {wildcards.model} on {wildcards.dataset}"


rule agree_confidence:
    input:
        prompts=ancient("results/{dataset}/prompts/test.jsonl"),
        manifest="results/{dataset}/{model}/samples.manifest.json",
        samples=ancient("results/{dataset}/{model}/samples.jsonl"),
    output:
        "results/{dataset}/{model}/{sampled}/confidences.jsonl",
    log:
        "results/logs/agree_confidence/{dataset}-{model}-{sampled}.log",
    benchmark:
        "results/benchmarks/agree_confidence/{dataset}-{model}-{sampled}.tsv"
    conda:
        "../../envs/gpu.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        task=lambda wc: config["datasets"][wc.dataset]["task"],
    message:
        "Measure agreement: {wildcards.sampled} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce agree --task {params.task} --method {wildcards.sampled} --prompts {input.prompts}"
        " --samples {input.samples} --out {output} 2>&1 | tee {log}"


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
    conda:
        "../../envs/gpu.yaml"
    threads: 1
    resources:
        mem_mb=8000,
        runtime=30,
    params:
        settings=argument("evaluate"),
    message:
        "Evaluate {wildcards.method} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce evaluate --settings {params.settings:q} --confidences {input.confidences}"
        " --surrogate {input.surrogate} --manifests {input.manifests} --out {output} 2>&1 | tee {log}"


# Without it the message for a misspelt cell would be Snakemake's, which cannot say what there is.
rule unknown_cell:
    input:
        unknown_cell,
    output:
        "results/{unknown}/metrics.json",
    wildcard_constraints:
        unknown=r"(?!({})/({})/)[^/]+/[^/]+/[^/]+".format(
            "|".join(config["datasets"]), "|".join(config["models"])
        ),
