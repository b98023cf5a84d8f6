# Prompted baselines: the answer LLM gives answer and confidence together, or is asked about its own greedy answer.
rule elicit:
    input:
        prompts="results/{dataset}/prompts/test.jsonl",
        samples=reads("elicit", "samples"),
        manifest=sealed("elicit", "samples"),
        base=base("elicit"),
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
        **inputs_and(of("elicit"), "dataset", "model", "prompted"),
    message:
        "Elicit confidences: {wildcards.prompted} by {wildcards.model} on {wildcards.dataset}{params.note}"
    shell:
        LEASE
        + "python -m orce elicit --settings {params.settings:q} {params.files:q} {params.shard:q} --out {output.out:q} 2>&1 | tee {log:q}"
