# Section 3.1: K answers to every prompt, and one greedy answer to every test prompt. Shards share the work of a cell.
# {ungraded} is empty, or the prefix of answers that a judge has yet to grade (grade.smk).
rule sample:
    input:
        unpack(reads("sample")),
    output:
        **ANSWERS.output("{ungraded}samples", "shards/{ungraded}samples"),
    log:
        ANSWERS.log("sample/{ungraded}{dataset}-{model}"),
    benchmark:
        ANSWERS.benchmark("sample/{ungraded}{dataset}-{model}")
    wildcard_constraints:
        dataset=targets.answered(CONFIG, given=False),
    priority: 40
    threads: CONFIG.resources.threads
    resources:
        **ANSWERING,
    params:
        **ANSWERS.params,
        **job("sample"),
    message:
        "Sample answers of {wildcards.model} on {wildcards.dataset}{params.note}"
    shell:
        logged(LEASE, RUN, "{params.shard:q} --out {output.out:q}")


# Answers already made take the place of the samples of their cell.
rule import_answers:
    input:
        unpack(reads("import_answers")),
    output:
        samples="results/{dataset}/{model}/{ungraded}samples.jsonl",
        manifest="results/{dataset}/{model}/{ungraded}samples.manifest.json",
    log:
        "results/logs/import_answers/{ungraded}{dataset}-{model}.log",
    benchmark:
        "results/benchmarks/import_answers/{ungraded}{dataset}-{model}.tsv"
    wildcard_constraints:
        dataset=targets.answered(CONFIG, given=True),
    priority: QUICK
    resources:
        **LIGHT,
    params:
        **job("import_answers"),
    message:
        "Take the given answers of {wildcards.model} on {wildcards.dataset}"
    shell:
        logged(RUN, "--out {output.samples:q} --manifest {output.manifest:q}")
