# Section 3.1: K answers to every prompt, and one greedy answer to every test prompt. Shards share the work of a cell.
rule sample_shard:
    input:
        prompts=lambda wc: frozen(wc, sampled_splits(wc)),
        base=base_weights,
    output:
        "results/{dataset}/{model}/shards/samples-{shard}.jsonl",
    log:
        "results/logs/sample/{dataset}-{model}-{shard}.log",
    benchmark:
        "results/benchmarks/sample/{dataset}-{model}-{shard}.tsv"
    priority: 40
    threads: config["resources"]["threads"]
    resources:
        gpu=answering_gpus,
        gpus_wanted=answering_gpus,
        mem_mb=config["resources"]["mem_mb"],
        runtime=config["resources"]["runtime"],
    params:
        settings=argument(settings.sample, "dataset", "model"),
        prompts=by_split,
        shards=config["answers"]["shards"],
    message:
        "Sample answers of {wildcards.model} on {wildcards.dataset} (shard {wildcards.shard})"
    shell:
        "python -m orce.runtime.lease {resources.gpu}/{resources.gpus_wanted} -- python -m orce sample"
        " --settings {params.settings:q} --prompts {params.prompts:q} --shard {wildcards.shard}/{params.shards:q}"
        " --out {output:q} 2>&1 | tee {log:q}"


rule sample:
    input:
        expand(
            "results/{{dataset}}/{{model}}/shards/samples-{shard}.jsonl",
            shard=SHARDS["answers"],
        ),
    output:
        samples="results/{dataset}/{model}/samples.jsonl",
        manifest="results/{dataset}/{model}/samples.manifest.json",
    log:
        "results/logs/sample/{dataset}-{model}.log",
    wildcard_constraints:
        dataset=hints.sampled(config),
    priority: QUICK
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    message:
        "Gather the samples of {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce gather --shards {input:q} --out {output.samples:q} --manifest {output.manifest:q} 2>&1 | tee {log:q}"


# Answers already made take the place of the samples of their cell.
rule import_answers:
    input:
        prompts=lambda wc: frozen(wc, sampled_splits(wc)),
    output:
        samples="results/{dataset}/{model}/samples.jsonl",
        manifest="results/{dataset}/{model}/samples.manifest.json",
    log:
        "results/logs/import_answers/{dataset}-{model}.log",
    benchmark:
        "results/benchmarks/import_answers/{dataset}-{model}.tsv"
    wildcard_constraints:
        dataset=hints.imported(config),
    priority: QUICK
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        settings=argument(settings.import_answers, "dataset", "model"),
        prompts=by_split,
    message:
        "Take the given answers of {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce import-answers --settings {params.settings:q} --prompts {params.prompts:q}"
        " --out {output.samples:q} --manifest {output.manifest:q} 2>&1 | tee {log:q}"
