# The test: a confidence LLM states its confidence in the greedy answer to every test question.
rule state_shard:
    input:
        prompts="results/{dataset}/prompts/test.jsonl",
        samples="results/{dataset}/{model}/samples.jsonl",
        manifest="results/{dataset}/{model}/samples.manifest.json",
        weights=stated_inputs,
    output:
        "results/{dataset}/{model}/shards/{stated}-{shard}.jsonl",
    log:
        "results/logs/state/{dataset}-{model}-{stated}-{shard}.log",
    benchmark:
        "results/benchmarks/state/{dataset}-{model}-{stated}-{shard}.tsv"
    priority: 20
    threads: config["resources"]["threads"]
    resources:
        gpu=config["gpus"],
        gpus_wanted=config["gpus"],
        mem_mb=config["resources"]["mem_mb"],
        runtime=config["resources"]["runtime"],
    params:
        settings=argument(settings.state, "dataset", "model", "stated"),
        weights=lambda wc: (
            ["--weights", stated_weights(wc)] if stated_weights(wc) else []
        ),
        shards=config["confidence"]["shards"],
    message:
        "State confidences: {wildcards.stated} for {wildcards.model} on {wildcards.dataset} (shard {wildcards.shard})"
    shell:
        "python -m orce.runtime.lease {resources.gpu}/{resources.gpus_wanted} -- python -m orce state"
        " --settings {params.settings:q} --prompts {input.prompts:q} --samples {input.samples:q} {params.weights:q}"
        " --shard {wildcards.shard}/{params.shards:q} --out {output:q} 2>&1 | tee {log:q}"


rule state:
    input:
        expand(
            "results/{{dataset}}/{{model}}/shards/{{stated}}-{shard}.jsonl",
            shard=SHARDS["confidence"],
        ),
    output:
        "results/{dataset}/{model}/{stated}/confidences.jsonl",
    log:
        "results/logs/state/{dataset}-{model}-{stated}.log",
    priority: QUICK
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        readout=config["evaluation"]["readout"],
    message:
        "Gather confidences: {wildcards.stated} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce gather --shards {input:q} --readout {params.readout:q} --out {output:q} 2>&1 | tee {log:q}"


rule agree:
    input:
        prompts="results/{dataset}/prompts/test.jsonl",
        samples="results/{dataset}/{model}/samples.jsonl",
        manifest="results/{dataset}/{model}/samples.manifest.json",
    output:
        "results/{dataset}/{model}/{sampled}/confidences.jsonl",
    log:
        "results/logs/agree/{dataset}-{model}-{sampled}.log",
    benchmark:
        "results/benchmarks/agree/{dataset}-{model}-{sampled}.tsv"
    priority: QUICK
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        task=lambda wc: config["datasets"][wc.dataset]["task"],
        method=lambda wc: REGISTRY.module(wc.sampled),
        modules=argument(settings.agree, "dataset", "sampled"),
    message:
        "Measure agreement: {wildcards.sampled} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce agree --task {params.task:q} --method {params.method:q} --prompts {input.prompts:q}"
        " --samples {input.samples:q} --out {output:q} 2>&1 | tee {log:q}"
