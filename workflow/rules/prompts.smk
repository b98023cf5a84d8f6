# The frozen questions of every split, and which training questions also occur in the test set.
rule prompts:
    output:
        prompts="results/{dataset}/prompts/{split}.jsonl",
        manifest="results/{dataset}/prompts/{split}.manifest.json",
    log:
        "results/logs/prompts/{dataset}-{split}.log",
    benchmark:
        "results/benchmarks/prompts/{dataset}-{split}.tsv"
    priority: QUICK
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        settings=argument(partial(stages.of, "prompts"), "dataset"),
    message:
        "Freeze the {wildcards.split} prompts of {wildcards.dataset}"
    shell:
        logged(
            "python -m orce prompts --settings {params.settings:q} --split {wildcards.split} --out {output.prompts:q} --manifest {output.manifest:q}"
        )


rule overlap:
    input:
        train=training_prompts,
        test="results/{dataset}/prompts/test.jsonl",
    output:
        "results/{dataset}/overlap.json",
    log:
        "results/logs/overlap/{dataset}.log",
    benchmark:
        "results/benchmarks/overlap/{dataset}.tsv"
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        task=task_of,
    message:
        "Look for training questions in the test set of {wildcards.dataset}"
    shell:
        logged(
            "python -m orce overlap --train {input.train:q} --test {input.test:q} --task {params.task:q} --out {output:q}"
        )
