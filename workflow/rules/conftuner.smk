# ConfTuner sees the same pairs as ORCE: those of SFT and of RL together.
use rule warm_start as conftuner with:
    input:
        surrogate="results/{dataset}/{model}/surrogate.csv",
        prompts=ancient(
            [
                "results/{dataset}/prompts/sft.jsonl",
                "results/{dataset}/prompts/rl.jsonl",
            ]
        ),
        base=base_weights,
    output:
        "results/{dataset}/{model}/conftuner/manifest.json",
    log:
        "results/logs/conftuner/{dataset}-{model}.log",
    benchmark:
        "results/benchmarks/conftuner/{dataset}-{model}.tsv"
    # Behind the warm start and before all that follows from it: the longest training must not come last, alone.
    priority: 25
    params:
        settings=stage("conftuner"),
        prompts=split_arguments("sft", "rl"),
        folder=lambda wc, output: Path(output[0]).parent,
        launch=launcher(),
        step="conftuner",
    message:
        "Train ConfTuner for {wildcards.model} on {wildcards.dataset}"
