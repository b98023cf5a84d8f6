# Section 3.3: M candidate confidences for every RL pair. Round 1 samples from the warm start, for all rewards at once;
# a later round samples afresh from the model of the previous round.
rule candidates:
    input:
        surrogate="results/{dataset}/{model}/surrogate.csv",
        prompts=["results/{dataset}/prompts/rl.jsonl"],
        weights=reads("candidates", "weights"),
        base=base("candidates"),
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
        **inputs_and(of("candidates"), "dataset", "model"),
        weights=start_of,
    message:
        "Sample candidate confidences of {wildcards.model} on {wildcards.dataset}{params.note}"
    shell:
        LEASE
        + "python -m orce candidates --settings {params.settings:q} {params.files:q} --weights {params.weights:q} {params.shard:q} --out {output.out:q} 2>&1 | tee {log:q}"
