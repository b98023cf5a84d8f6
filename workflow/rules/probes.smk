# Probes: hidden states of the answer LLM or of the untrained confidence LLM, and what is fitted to them on training questions.
rule states:
    input:
        unpack(reads("states")),
    output:
        **READINGS.output("states/{states}", "shards/states-{states}", manifest=False),
    log:
        READINGS.log("states/{dataset}-{model}-{states}"),
    benchmark:
        READINGS.benchmark("states/{dataset}-{model}-{states}")
    priority: 20
    threads: CONFIG.resources.threads
    resources:
        **GPU_JOB,
    params:
        **READINGS.params,
        **job("states"),
    message:
        "Read hidden states ({wildcards.states}) for {wildcards.model} on {wildcards.dataset}{params.note}"
    shell:
        logged(LEASE, RUN, "{params.shard:q} --out {output.out:q}")
