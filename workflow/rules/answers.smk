# Section 3.1: K answers to every prompt, and one greedy answer to every test prompt. Shards share the work of a cell.
# {ungraded} is empty, or the prefix of answers that a grader has yet to grade.
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
        **on_gpus(lambda wildcards: 0 if settings.on_server(CONFIG, wildcards.model) else CONFIG.gpus, "sample"),
    params:
        **job("sample"),
    message:
        "Sample answers of {wildcards.model} on {wildcards.dataset}{params.note}"
    shell:
        LEASED


# kappa, the share of right answers, and the answer that the confidence LLM sees.
rule surrogate:
    input:
        unpack(reads("surrogate")),
    output:
        out="results/{dataset}/{model}/surrogate.csv",
    log:
        "results/logs/surrogate/{dataset}-{model}.log",
    benchmark:
        "results/benchmarks/surrogate/{dataset}-{model}.tsv"
    priority: QUICK
    resources:
        **LIGHT,
    params:
        **job("surrogate"),
    message:
        "Estimate kappa of {wildcards.model} on {wildcards.dataset}"
    shell:
        RUN


# Answers already made take the place of the samples of their cell.
use rule surrogate as import_answers with:
    input:
        unpack(reads("import_answers")),
    output:
        out="results/{dataset}/{model}/{ungraded}samples.jsonl",
        manifest="results/{dataset}/{model}/{ungraded}samples.manifest.json",
    log:
        "results/logs/import_answers/{ungraded}{dataset}-{model}.log",
    benchmark:
        "results/benchmarks/import_answers/{ungraded}{dataset}-{model}.tsv"
    wildcard_constraints:
        dataset=targets.answered(CONFIG, given=True),
    params:
        **job("import_answers"),
    message:
        "Take the given answers of {wildcards.model} on {wildcards.dataset}"


# Where the configuration has a grader, it grades the answers between sampling and all that reads samples.jsonl.
if CONFIG.grading is not None:

    use rule sample as grade with:
        input:
            unpack(reads("grade")),
        output:
            **({"meanings": "results/{dataset}/{model}/meanings.jsonl"} if settings.grouping(CONFIG) else {}),
            verdicts="results/{dataset}/{model}/verdicts.jsonl",
            disagreements="results/{dataset}/{model}/disagreements.jsonl",
            out="results/{dataset}/{model}/samples.jsonl",
            manifest="results/{dataset}/{model}/samples.manifest.json",
        log:
            "results/logs/grade/{dataset}-{model}.log",
        benchmark:
            "results/benchmarks/grade/{dataset}-{model}.tsv"
        wildcard_constraints:
            dataset=targets.graded(CONFIG),
        resources:
            **on_gpus(settings.grading_gpus(CONFIG), "grade"),
        params:
            **job("grade"),
        message:
            "Grade the answers of {wildcards.model} on {wildcards.dataset}"
