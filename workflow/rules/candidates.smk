# Section 3.3: M candidate confidences for every RL pair. Round 1 samples from the warm start, for all rewards at once;
# a later round samples afresh from the model of the previous round.
rule candidates_shard:
    input:
        surrogate="results/{dataset}/{model}/surrogate.csv",
        prompts=["results/{dataset}/prompts/rl.jsonl"],
        weights=manifest_of(sampled_from),
        base=judge_weights,
    output:
        "results/{dataset}/{model}/{round}shards/candidates-{shard}.jsonl",
    log:
        "results/logs/candidates/{dataset}-{model}-{round}{shard}.log",
    benchmark:
        "results/benchmarks/candidates/{dataset}-{model}-{round}{shard}.tsv"
    priority: 20
    threads: config["resources"]["threads"]
    resources:
        gpu=config["gpus"],
        gpus_wanted=config["gpus"],
        mem_mb=config["resources"]["mem_mb"],
        runtime=config["resources"]["runtime"],
    params:
        settings=argument(settings.candidates, "dataset", "model"),
        prompts=by_split,
        weights=sampled_from,
        shards=config["confidence"]["shards"],
    message:
        "Sample candidate confidences of {wildcards.model} on {wildcards.dataset} (shard {wildcards.shard})"
    shell:
        "python -m orce.runtime.lease {resources.gpu}/{resources.gpus_wanted} -- python -m orce candidates"
        " --settings {params.settings:q} --surrogate {input.surrogate:q} --prompts {params.prompts:q}"
        " --weights {params.weights:q} --shard {wildcards.shard}/{params.shards:q} --out {output:q} 2>&1 | tee {log:q}"


rule candidates:
    input:
        expand(
            "results/{{dataset}}/{{model}}/{{round}}shards/candidates-{shard}.jsonl",
            shard=SHARDS["confidence"],
        ),
    output:
        candidates="results/{dataset}/{model}/{round}candidates.jsonl",
        manifest="results/{dataset}/{model}/{round}candidates.manifest.json",
    log:
        "results/logs/candidates/{dataset}-{model}-{round}gather.log",
    priority: QUICK
    threads: 1
    resources:
        mem_mb=8000,
        runtime=30,
    message:
        "Gather the candidate confidences of {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce gather --shards {input:q} --out {output.candidates:q} --manifest {output.manifest:q}"
        " 2>&1 | tee {log:q}"
