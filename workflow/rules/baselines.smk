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
