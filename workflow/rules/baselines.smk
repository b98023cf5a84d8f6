# Prompted baselines: the answer LLM gives answer and confidence together, or is asked about its own greedy answer.
use rule sample as elicit with:
    input:
        unpack(reads("elicit")),
    output:
        **ANSWERS.output("{prompted}/confidences", "shards/{prompted}", manifest=False),
    log:
        ANSWERS.log("elicit/{dataset}-{model}-{prompted}"),
    benchmark:
        ANSWERS.benchmark("elicit/{dataset}-{model}-{prompted}")
    priority: 20
    params:
        **job("elicit"),
    message:
        "Elicit confidences: {wildcards.prompted} by {wildcards.model} on {wildcards.dataset}{params.note}"


# The answer LLM's own probabilities.
use rule candidates as likelihoods with:
    input:
        unpack(reads("likelihoods")),
    output:
        **READINGS.output("{scored}", "shards/{scored}", manifest=False),
    log:
        READINGS.log("{scored}/{dataset}-{model}"),
    benchmark:
        READINGS.benchmark("{scored}/{dataset}-{model}")
    params:
        **job("likelihoods"),
    message:
        "Read the {wildcards.scored} of {wildcards.model} on {wildcards.dataset}{params.note}"


# Measures of these and of the samples.
use rule surrogate as derive with:
    input:
        unpack(reads("derive")),
    output:
        out="results/{dataset}/{model}/{measured}/confidences.jsonl",
    log:
        "results/logs/derive/{dataset}-{model}-{measured}.log",
    benchmark:
        "results/benchmarks/derive/{dataset}-{model}-{measured}.tsv"
    params:
        **job("derive"),
        modules=lambda wildcards: settings.to_argument(
            pinned(graph.RULES["derive"].more(CONFIG, stage("derive", wildcards)))
        ),
    message:
        "Derive {wildcards.measured} for {wildcards.model} on {wildcards.dataset}"


# Confidences of a method that ran elsewhere.
use rule surrogate as import_confidences with:
    input:
        unpack(reads("import_confidences")),
    output:
        out="results/{dataset}/{model}/{external}/confidences.jsonl",
    log:
        "results/logs/import_confidences/{dataset}-{model}-{external}.log",
    benchmark:
        "results/benchmarks/import_confidences/{dataset}-{model}-{external}.tsv"
    params:
        **job("import_confidences"),
    message:
        "Take the given confidences of {wildcards.external} for {wildcards.model} on {wildcards.dataset}"


# Hidden states of the answer LLM or of the untrained confidence LLM, which probes read.
use rule candidates as states with:
    input:
        unpack(reads("states")),
    output:
        **READINGS.output("states/{states}", "shards/states-{states}", manifest=False),
    log:
        READINGS.log("states/{dataset}-{model}-{states}"),
    benchmark:
        READINGS.benchmark("states/{dataset}-{model}-{states}")
    params:
        **job("states"),
    message:
        "Read hidden states ({wildcards.states}) for {wildcards.model} on {wildcards.dataset}{params.note}"


# Calibrations, combinations and probes: never fitted on a test answer.
use rule surrogate as fit with:
    input:
        unpack(reads("fit")),
    output:
        out="results/{dataset}/{model}/{fitted}/confidences.jsonl",
        fit="results/{dataset}/{model}/{fitted}/fit.json",
    log:
        "results/logs/fit/{dataset}-{model}-{fitted}.log",
    benchmark:
        "results/benchmarks/fit/{dataset}-{model}-{fitted}.tsv"
    params:
        **job("fit"),
    message:
        "Fit {wildcards.fitted} for {wildcards.model} on {wildcards.dataset}"
