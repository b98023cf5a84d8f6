# Section 3.3: M candidate confidences for every RL pair. Round 1 samples from the warm start, for all rewards at once;
# a later round samples afresh from the model of the previous round.
rule candidates:
    input:
        unpack(reads("candidates")),
    output:
        **READINGS.output("{round}candidates", "{round}shards/candidates"),
    log:
        READINGS.log("candidates/{dataset}-{model}-{round}all"),
    benchmark:
        READINGS.benchmark("candidates/{dataset}-{model}-{round}all")
    priority: 20
    threads: CONFIG.resources.threads
    resources:
        **GPU_JOB,
    params:
        **READINGS.params,
        **job("candidates"),
    message:
        "Sample candidate confidences of {wildcards.model} on {wildcards.dataset}{params.note}"
    shell:
        logged(LEASE, RUN, "{params.shard:q} --out {output.out:q}")
