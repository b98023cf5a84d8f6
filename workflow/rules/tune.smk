# Settings of the alignment, chosen on the validation split and never on the test: `snakemake -- tune`.
use rule dpo as tune_dpo with:
    input:
        pairs="results/{dataset}/{model}/pairs/{reward}.jsonl",
        manifest="results/{dataset}/{model}/pairs/{reward}.manifest.json",
        sft="results/{dataset}/{model}/sft/manifest.json",
        start="results/{dataset}/{model}/sft/manifest.json",
        base=base("tune_dpo"),
    output:
        "results/{dataset}/{model}/tune/{reward}/{trial}/manifest.json",
    log:
        "results/logs/tune_dpo/{dataset}-{model}-{reward}-{trial}.log",
    benchmark:
        "results/benchmarks/tune_dpo/{dataset}-{model}-{reward}-{trial}.tsv"
    params:
        settings=argument(of("tune_dpo"), "dataset", "model", "trial"),
        folder=subpath(output[0], parent=True),
        sft=subpath(input.sft, parent=True),
        start=subpath(input.start, parent=True),
        launch=launcher,
    message:
        "Try {wildcards.trial} for {wildcards.model} on {wildcards.dataset} ({wildcards.reward})"


rule tune_state:
    input:
        prompts="results/{dataset}/prompts/validation.jsonl",
        samples="results/{dataset}/{model}/samples.jsonl",
        manifest="results/{dataset}/{model}/samples.manifest.json",
        weights="results/{dataset}/{model}/tune/{reward}/{trial}/manifest.json",
    output:
        "results/{dataset}/{model}/tune/{reward}/{trial}.jsonl",
    log:
        "results/logs/tune_state/{dataset}-{model}-{reward}-{trial}.log",
    benchmark:
        "results/benchmarks/tune_state/{dataset}-{model}-{reward}-{trial}.tsv"
    priority: 20
    threads: CONFIG.resources.threads
    resources:
        **GPU_JOB,
    params:
        **inputs_and(of("tune_state"), "dataset", "model"),
        folder=subpath(input.weights, parent=True),
    message:
        "State confidences on the validation split: {wildcards.trial} for {wildcards.model} on {wildcards.dataset}"
    shell:
        LEASE
        + "python -m orce state --settings {params.settings:q} --split validation {params.files:q} --weights {params.folder:q} --out {output:q} 2>&1 | tee {log:q}"


# One setting for the run: the best on average over the cells of its tables in which the paper's reward is trained.
rule tune:
    input:
        lambda wc: [
            cell.trial(cells.PAPER, trial)
            for cell in matrix.tuned(CONFIG, TABLES)
            for trial in settings.trials(CONFIG)
        ],
    output:
        "results/tuned.yaml",
    log:
        "results/logs/tune/tune.log",
    resources:
        **LIGHT,
    params:
        settings=argument(of("tune")),
    message:
        "Choose the settings of dpo"
    shell:
        "python -m orce tune --settings {params.settings:q} --confidences {input:q} --out {output:q} 2>&1 | tee {log:q}"
