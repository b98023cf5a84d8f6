# Prompted baselines: the answer LLM gives answer and confidence together, or is asked about its own greedy answer.
use rule sample as elicit with:
    input:
        unpack(reads("elicit")),
    output:
        **makes("elicit"),
    log:
        of_job("results/logs/elicit/{dataset}-{model}-{prompted}.log", "elicit"),
    benchmark:
        of_job("results/benchmarks/elicit/{dataset}-{model}-{prompted}.tsv", "elicit")
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
        **makes("likelihoods"),
    log:
        of_job("results/logs/{scored}/{dataset}-{model}.log", "likelihoods"),
    benchmark:
        of_job("results/benchmarks/{scored}/{dataset}-{model}.tsv", "likelihoods")
    params:
        **job("likelihoods"),
    message:
        "Read the {wildcards.scored} of {wildcards.model} on {wildcards.dataset}{params.note}"


# Hidden states of the answer LLM or of the untrained confidence LLM, which probes read.
use rule candidates as states with:
    input:
        unpack(reads("states")),
    output:
        **makes("states"),
    log:
        of_job("results/logs/states/{dataset}-{model}-{states}.log", "states"),
    benchmark:
        of_job("results/benchmarks/states/{dataset}-{model}-{states}.tsv", "states")
    params:
        **job("states"),
    message:
        "Read hidden states ({wildcards.states}) for {wildcards.model} on {wildcards.dataset}{params.note}"
