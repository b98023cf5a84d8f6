# The stages of a cell that read with a model, and those of seconds: what each says, and the names of its logs. Their files are
# those of the graph.
READING = {
    # Section 3.3: M candidate confidences for every RL pair. Round 1 samples from the warm start, for all rewards at once; a later
    # round samples afresh from the model of the previous round.
    "candidates": (
        "Sample candidate confidences of {wildcards.model} on {wildcards.dataset}{params.note}",
        "candidates/{dataset}-{model}-{round}all",
    ),
    # The test: a confidence LLM states its confidence in the greedy answer to every test question.
    "state": (
        "State confidences: {wildcards.stated} for {wildcards.model} on {wildcards.dataset}{params.note}",
        "state/{dataset}-{model}-{stated}",
    ),
    "tune_state": (
        "State confidences on the validation split: {wildcards.trial} for {wildcards.model} on {wildcards.dataset}{params.note}",
        "tune_state/{dataset}-{model}-{reward}-{trial}",
    ),
    # The answer LLM's own probabilities.
    "likelihoods": (
        "Read the {wildcards.scored} of {wildcards.model} on {wildcards.dataset}{params.note}",
        "{scored}/{dataset}-{model}",
    ),
    # Hidden states of the answer LLM or of the untrained confidence LLM, which probes read.
    "states": (
        "Read hidden states ({wildcards.states}) for {wildcards.model} on {wildcards.dataset}{params.note}",
        "states/{dataset}-{model}-{states}",
    ),
}
SECONDS = {
    # The answers already made take the place of samples.
    "import_answers": (
        "Take the given answers of {wildcards.model} on {wildcards.dataset}",
        "{ungraded}{dataset}-{model}",
    ),
    # kappa, the share of right answers, and the answer that the confidence LLM sees.
    "surrogate": ("Estimate kappa of {wildcards.model} on {wildcards.dataset}", "{dataset}-{model}"),
    # For each prompt, the candidates with the highest and the lowest reward.
    "pairs": (
        "Select pairs by reward {wildcards.reward} for {wildcards.model} on {wildcards.dataset}",
        "{dataset}-{model}-{round}{reward}",
    ),
    # Measures of samples and likelihoods.
    "derive": (
        "Derive {wildcards.measured} for {wildcards.model} on {wildcards.dataset}",
        "{dataset}-{model}-{measured}",
    ),
    # Confidences of a method that ran elsewhere.
    "import_confidences": (
        "Take the given confidences of {wildcards.external} for {wildcards.model} on {wildcards.dataset}",
        "{dataset}-{model}-{external}",
    ),
    # Calibrations, combinations and probes: never fitted on a test answer.
    "fit": ("Fit {wildcards.fitted} for {wildcards.model} on {wildcards.dataset}", "{dataset}-{model}-{fitted}"),
    # The paper's metrics, and in extra.json what others report.
    "evaluate": (
        "Evaluate {wildcards.method} for {wildcards.model} on {wildcards.dataset}",
        "{dataset}-{model}-{method}",
    ),
}

for name, (says, stem) in READING.items():

    rule:
        name:
            name
        input:
            unpack(reads(name)),
        output:
            **makes(name),
        log:
            of_job(f"results/logs/{stem}.log", name),
        benchmark:
            of_job(f"results/benchmarks/{stem}.tsv", name)
        priority: 20
        threads: CONFIG.resources.threads
        resources:
            **on_gpus(CONFIG.gpus, name),
        params:
            **job(name),
        message:
            says
        shell:
            LEASED


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
            says
        shell:
            RUN
