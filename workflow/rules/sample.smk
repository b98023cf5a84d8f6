# Section 3.1: K answers to every prompt, and one greedy answer to every test prompt. Shards share the work of a cell.
# {ungraded} is empty, or the prefix of answers that a judge has yet to grade (grade.smk).
rule sample:
    input:
        prompts=frozen(settings.splits, "dataset", "model"),
        base=base("sample"),
    output:
        **ANSWERS.output("{ungraded}samples", "shards/{ungraded}samples"),
    log:
        ANSWERS.log("sample/{ungraded}{dataset}-{model}"),
    benchmark:
        ANSWERS.benchmark("sample/{ungraded}{dataset}-{model}")
    wildcard_constraints:
        dataset=hints.sampled(CONFIG),
    priority: 40
    threads: CONFIG.resources.threads
    resources:
        **ANSWERING,
    params:
        **ANSWERS.params,
        **inputs_and(of("sample"), "dataset", "model"),
    message:
        "Sample answers of {wildcards.model} on {wildcards.dataset}{params.note}"
    shell:
        LEASE
        + "python -m orce sample --settings {params.settings:q} {params.files:q} {params.shard:q} --out {output.out:q} 2>&1 | tee {log:q}"


# Answers already made take the place of the samples of their cell.
rule import_answers:
    input:
        prompts=frozen(settings.splits, "dataset", "model"),
    output:
        samples="results/{dataset}/{model}/{ungraded}samples.jsonl",
        manifest="results/{dataset}/{model}/{ungraded}samples.manifest.json",
    log:
        "results/logs/import_answers/{ungraded}{dataset}-{model}.log",
    benchmark:
        "results/benchmarks/import_answers/{ungraded}{dataset}-{model}.tsv"
    wildcard_constraints:
        dataset=hints.imported(CONFIG),
    priority: QUICK
    resources:
        **LIGHT,
    params:
        **inputs_and(of("import_answers"), "dataset", "model"),
    message:
        "Take the given answers of {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce import-answers --settings {params.settings:q} {params.files:q} --out {output.samples:q} --manifest {output.manifest:q} 2>&1 | tee {log:q}"
