# Weights from a package or the hub, the frozen questions of every split, and which training questions are also in the test set.
rule convert_model:
    output:
        "results/models/{model}/manifest.json",
    log:
        "results/logs/convert_model/{model}.log",
    benchmark:
        "results/benchmarks/convert_model/{model}.tsv"
    wildcard_constraints:
        model=targets.any_of(name for name, spec in CONFIG.models.items() if "package" in spec.source),
    priority: QUICK
    localrule: True
    threads: CONFIG.resources.threads
    resources:
        mem_mb=CONFIG.resources.mem_mb,
    params:
        package=lookup("models/{model}/source/package", within=config),
        file=lookup("models/{model}/source/file", within=config),
        settings=lambda wildcards: to_argument(CONFIG.models[wildcards.model].source),
    message:
        "Convert the weights of {wildcards.model}"
    shell:
        "python -m orce convert-model --package {params.package:q} --file {params.file:q} --out {output} 2>&1 | tee {log}"


rule fetch:
    output:
        "results/models/{model}/manifest.json",
    log:
        "results/logs/fetch/{model}.log",
    benchmark:
        "results/benchmarks/fetch/{model}.tsv"
    wildcard_constraints:
        model=targets.any_of(name for name, spec in CONFIG.models.items() if "hub" in spec.source),
    priority: QUICK
    localrule: True
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        settings=lambda wildcards: to_argument(CONFIG.models[wildcards.model].source),
    message:
        "Fetch the weights of {wildcards.model}"
    shell:
        "python -m orce fetch --source {params.settings:q} --out {output} 2>&1 | tee {log}"


rule prompts:
    output:
        out="results/{dataset}/prompts/{split}.jsonl",
        manifest="results/{dataset}/prompts/{split}.manifest.json",
    log:
        "results/logs/prompts/{dataset}-{split}.log",
    benchmark:
        "results/benchmarks/prompts/{dataset}-{split}.tsv"
    priority: QUICK
    localrule: True
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        settings=settings_of("prompts", "{dataset}"),
    message:
        "Freeze the {wildcards.split} prompts of {wildcards.dataset}"
    shell:
        "python -m orce prompts --settings {params.settings:q} --split {wildcards.split}"
        " --out {output.out} --manifest {output.manifest} 2>&1 | tee {log}"


rule overlap:
    input:
        train=lambda wildcards: training_prompts(wildcards.dataset),
        test="results/{dataset}/prompts/test.jsonl",
    output:
        "results/{dataset}/overlap.json",
    log:
        "results/logs/overlap/{dataset}.log",
    benchmark:
        "results/benchmarks/overlap/{dataset}.tsv"
    priority: QUICK
    localrule: True
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        task=lambda wildcards: CONFIG.datasets[wildcards.dataset].task,
        settings=lambda wildcards: to_argument({"task": CONFIG.datasets[wildcards.dataset].task}),
    message:
        "Look for training questions in the test set of {wildcards.dataset}"
    shell:
        "python -m orce overlap --train {input.train} --test {input.test} --task {params.task:q}"
        " --out {output} 2>&1 | tee {log}"
