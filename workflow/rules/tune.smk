# Settings of the alignment, chosen on the validation split and never on the test: `snakemake -- tune`.
use rule dpo as tune_dpo with:
    input:
        unpack(reads("tune_dpo")),
    output:
        out="results/{dataset}/{model}/tune/{reward}/{trial}/manifest.json",
    log:
        "results/logs/tune_dpo/{dataset}-{model}-{reward}-{trial}.log",
    benchmark:
        "results/benchmarks/tune_dpo/{dataset}-{model}-{reward}-{trial}.tsv"
    params:
        **job("tune_dpo"),
    message:
        "Try {wildcards.trial} for {wildcards.model} on {wildcards.dataset} ({wildcards.reward})"


# One setting for the run: the best on average over the cells of its tables in which the paper's reward is trained.
use rule prompts as tune with:
    input:
        confidences=lambda wildcards: graph.trials(CONFIG, TABLES),
    output:
        out="results/tuned.yaml",
    log:
        "results/logs/tune/tune.log",
    benchmark:
        "results/benchmarks/tune/tune.tsv"
    params:
        **job("tune"),
    message:
        "Choose the settings of dpo"
