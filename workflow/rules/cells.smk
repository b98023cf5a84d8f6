# The stages that take seconds in a cell: what each says, and the end of its logs' names. Its files are those of the graph.
SECONDS = {
    # The answers already made take the place of samples.
    "import_answers": ("Take the given answers", "{ungraded}{dataset}-{model}"),
    # kappa, the share of right answers, and the answer that the confidence LLM sees.
    "surrogate": ("Estimate kappa", "{dataset}-{model}"),
    # For each prompt, the candidates with the highest and the lowest reward.
    "pairs": ("Select pairs by reward {wildcards.reward}", "{dataset}-{model}-{round}{reward}"),
    # Measures of samples and likelihoods.
    "derive": ("Derive {wildcards.measured}", "{dataset}-{model}-{measured}"),
    # Confidences of a method that ran elsewhere.
    "import_confidences": ("Take the given confidences of {wildcards.external}", "{dataset}-{model}-{external}"),
    # Calibrations, combinations and probes: never fitted on a test answer.
    "fit": ("Fit {wildcards.fitted}", "{dataset}-{model}-{fitted}"),
    # The paper's metrics, and in extra.json what others report.
    "evaluate": ("Evaluate {wildcards.method}", "{dataset}-{model}-{method}"),
}

for name, (says, stem) in SECONDS.items():

    rule:
        name:
            name
        input:
            unpack(reads(name)),
        output:
            **makes(name),
        log:
            f"results/logs/{name}/{stem}.log",
        benchmark:
            f"results/benchmarks/{name}/{stem}.tsv"
        wildcard_constraints:
            **({"dataset": targets.answered(CONFIG, given=True)} if name == "import_answers" else {}),
        priority: QUICK
        localrule: True
        resources:
            **LIGHT,
        params:
            **job(name),
        message:
            says + " for {wildcards.model} on {wildcards.dataset}"
        shell:
            RUN
