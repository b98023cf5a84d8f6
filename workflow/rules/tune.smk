# Settings of the alignment, chosen on the validation split and never on the test: `snakemake -- tune`.
use rule dpo as tune_dpo with:
    input:
        unpack(reads("tune_dpo")),
    output:
        "results/{dataset}/{model}/tune/{reward}/{trial}/manifest.json",
    log:
        "results/logs/tune_dpo/{dataset}-{model}-{reward}-{trial}.log",
    benchmark:
        "results/benchmarks/tune_dpo/{dataset}-{model}-{reward}-{trial}.tsv"
    params:
        **job("tune_dpo"),
        folder=subpath(output[0], parent=True),
        launch=launcher,
    message:
        "Try {wildcards.trial} for {wildcards.model} on {wildcards.dataset} ({wildcards.reward})"


rule tune_state:
    input:
        unpack(reads("tune_state")),
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
        **job("tune_state"),
    message:
        "State confidences on the validation split: {wildcards.trial} for {wildcards.model} on {wildcards.dataset}"
    shell:
        logged(LEASE, RUN, "{params.more:q} --out {output:q}")


# One setting for the run: the best on average over the cells of its tables in which the paper's reward is trained.
rule tune:
    input:
        lambda wc: [
            cell.trial(cells.PAPER, trial)
            for cell in graph.tuned(CONFIG, TABLES)
            for trial in settings.trials(CONFIG)
        ],
    output:
        "results/tuned.yaml",
    log:
        "results/logs/tune/tune.log",
    resources:
        **LIGHT,
    params:
        settings=argument(partial(stages.of, "tune")),
    message:
        "Choose the settings of dpo"
    shell:
        logged(
            "python -m orce tune --settings {params.settings:q} --confidences {input:q} --out {output:q}"
        )
