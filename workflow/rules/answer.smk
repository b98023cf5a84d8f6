# What a run wants of each cell is written down first, so that one engine start serves all that it wants of some weights.
# Priorities: the longest chain (answer, warm start, read, align) goes first, the rest fills the gaps.
rule request:
    output:
        "results/{dataset}/{model}/requests/{what}.json",
    log:
        "results/logs/request/{dataset}-{model}-{what}.log",
    conda:
        "../../envs/gpu.yaml"
    threads: 1
    resources:
        mem_mb=100,
        runtime=5,
    params:
        request=argument("request"),
    message:
        "Want {wildcards.what} of {wildcards.model} on {wildcards.dataset}"
    shell:
        "printf '%s\\n' {params.request:q} > {output} 2> {log}"


rule answer:
    input:
        requests=lambda wc: request_files(wc, scope.ANSWERS),
        sources=lambda wc: request_inputs(wc, scope.ANSWERS),
        base=base_weights,
    output:
        touch("results/engines/{weights}/answers-{shard}.done"),
    log:
        "results/logs/answer/{weights}-{shard}.log",
    benchmark:
        "results/benchmarks/answer/{weights}-{shard}.tsv"
    priority: 40
    conda:
        "../../envs/gpu.yaml"
    threads: config["resources"]["threads"]
    resources:
        gpu=answering_gpus,
        gpus_wanted=answering_gpus,
        mem_mb=config["resources"]["mem_mb"],
        runtime=config["resources"]["runtime"],
    params:
        speed=settings.to_argument(settings.engine(config)),
        shards=config["answers"]["shards"],
    message:
        "Answer with {wildcards.weights} (shard {wildcards.shard})"
    shell:
        "python -m orce.runtime.lease {resources.gpu}/{resources.gpus_wanted} -- python -m orce answer --requests {input.requests}"
        " --shard {wildcards.shard}/{params.shards} --speed {params.speed:q} 2>&1 | tee {log}"


rule gather_samples:
    input:
        request="results/{dataset}/{model}/requests/samples.json",
        prompts=lambda wc: expand(
            "results/{dataset}/prompts/{split}.manifest.json",
            dataset=wc.dataset,
            split=settings.splits(config, wc.dataset, wc.model),
        ),
        answered=served("samples"),
    output:
        samples="results/{dataset}/{model}/samples.jsonl",
        manifest="results/{dataset}/{model}/samples.manifest.json",
    log:
        "results/logs/gather_samples/{dataset}-{model}.log",
    benchmark:
        "results/benchmarks/gather_samples/{dataset}-{model}.tsv"
    priority: 40
    conda:
        "../../envs/gpu.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        shards=config["answers"]["shards"],
    message:
        "Gather the samples of {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce gather-samples --request {input.request} --shards {params.shards}"
        " --out {output.samples} --manifest {output.manifest} 2>&1 | tee {log}"
