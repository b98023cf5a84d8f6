# Section 3.1: K answers to every prompt, and one greedy answer to every test prompt. Shards share the work of a cell.
# {ungraded} is empty, or the prefix of answers that a grader has yet to grade.
rule sample:
    input:
        unpack(reads("sample")),
    output:
        **makes("sample"),
    log:
        of_job("results/logs/sample/{ungraded}{dataset}-{model}.log", "sample"),
    benchmark:
        of_job("results/benchmarks/sample/{ungraded}{dataset}-{model}.tsv", "sample")
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
