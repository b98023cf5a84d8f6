# Prompted baselines: the answer LLM gives answer and confidence together, or is asked about its own greedy answer.
rule elicit:
    input:
        unpack(reads("elicit")),
    output:
        **ANSWERS.output("{prompted}/confidences", "shards/{prompted}", manifest=False),
    log:
        ANSWERS.log("elicit/{dataset}-{model}-{prompted}"),
    benchmark:
        ANSWERS.benchmark("elicit/{dataset}-{model}-{prompted}")
    priority: 20
    threads: CONFIG.resources.threads
    resources:
        **ANSWERING,
    params:
        **ANSWERS.params,
        **job("elicit"),
    message:
        "Elicit confidences: {wildcards.prompted} by {wildcards.model} on {wildcards.dataset}{params.note}"
    shell:
        logged(LEASE, RUN, "{params.shard:q} --out {output.out:q}")
