# Prompted baselines: the answer LLM gives answer and confidence together, or is asked about its own greedy answer.
rule elicit_shard:
    input:
        prompts="results/{dataset}/prompts/test.jsonl",
        samples=greedy_answers,
        manifest=lambda wc: [manifest(path) for path in greedy_answers(wc)],
        base=base_weights,
    output:
        "results/{dataset}/{model}/shards/{prompted}-{shard}.jsonl",
    log:
        "results/logs/elicit/{dataset}-{model}-{prompted}-{shard}.log",
    benchmark:
        "results/benchmarks/elicit/{dataset}-{model}-{prompted}-{shard}.tsv"
    priority: 20
    threads: config["resources"]["threads"]
    resources:
        gpu=answering_gpus,
        gpus_wanted=answering_gpus,
        mem_mb=config["resources"]["mem_mb"],
        runtime=config["resources"]["runtime"],
    params:
        settings=argument(settings.elicit, "dataset", "model", "prompted"),
        samples=lambda wc, input: (
            ["--samples", *input.samples] if input.samples else []
        ),
        shards=config["answers"]["shards"],
    message:
        "Elicit confidences: {wildcards.prompted} by {wildcards.model} on {wildcards.dataset} (shard {wildcards.shard})"
    shell:
        "python -m orce.runtime.lease {resources.gpu}/{resources.gpus_wanted} -- python -m orce elicit"
        " --settings {params.settings:q} --prompts {input.prompts:q} {params.samples:q}"
        " --shard {wildcards.shard}/{params.shards:q} --out {output:q} 2>&1 | tee {log:q}"


rule elicit:
    input:
        expand(
            "results/{{dataset}}/{{model}}/shards/{{prompted}}-{shard}.jsonl",
            shard=SHARDS["answers"],
        ),
    output:
        "results/{dataset}/{model}/{prompted}/confidences.jsonl",
    log:
        "results/logs/elicit/{dataset}-{model}-{prompted}.log",
    priority: QUICK
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    message:
        "Gather confidences: {wildcards.prompted} by {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce gather --shards {input:q} --out {output:q} 2>&1 | tee {log:q}"
