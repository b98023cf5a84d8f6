# Priorities: the longest chain (sample, warm start, candidates, align) goes first, the rest fills the gaps.
rule sample:
    input:
        manifests=prompt_manifests,
        prompts=lambda wc: ancient(sampled_prompts(wc)),
        base=base_weights,
    output:
        "results/{dataset}/{model}/samples/{shard}.jsonl",
    log:
        "results/logs/sample/{dataset}-{model}-{shard}.log",
    benchmark:
        "results/benchmarks/sample/{dataset}-{model}-{shard}.tsv"
    priority: 40
    conda:
        "../../envs/gpu.yaml"
    threads: config["resources"]["threads"]
    resources:
        gpu=answering_gpus,
        mem_mb=config["resources"]["mem_mb"],
        runtime=config["resources"]["runtime"],
    params:
        settings=argument("sample"),
        prompts=sampled_arguments,
        shards=config["answers"]["shards"],
    message:
        "Sample answers of {wildcards.model} to {wildcards.dataset}, shard {wildcards.shard}"
    shell:
        "python -m orce.lease {resources.gpu} -- python -m orce sample --settings {params.settings:q} --prompts {params.prompts}"
        " --shard {wildcards.shard}/{params.shards} --out {output} 2>&1 | tee {log}"


rule gather_samples:
    input:
        lambda wc: expand(
            "results/{{dataset}}/{{model}}/samples/{shard}.jsonl",
            shard=range(config["answers"]["shards"]),
        ),
    output:
        samples="results/{dataset}/{model}/samples.jsonl",
        manifest="results/{dataset}/{model}/samples.manifest.json",
    log:
        "results/logs/gather_samples/{dataset}-{model}.log",
    benchmark:
        "results/benchmarks/gather_samples/{dataset}-{model}.tsv"
    conda:
        "../../envs/gpu.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    message:
        "Gather the samples of {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce gather-samples --shards {input} --out {output.samples} --manifest {output.manifest}"
        " 2>&1 | tee {log}"
