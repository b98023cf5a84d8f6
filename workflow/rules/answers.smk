# Section 3.1: answers, and how often they are right.
# K answers to every prompt, and one greedy answer to every test prompt. What a grader has yet to grade is ungraded-samples.jsonl.
rule sample:
    input:
        prompts=sampled_prompts,
        base=answer_llm,
    output:
        out="results/{dataset}/{model}/{shard}{ungraded}samples.jsonl",
        manifest="results/{dataset}/{model}/{shard}{ungraded}samples.manifest.json",
    log:
        "results/logs/sample/{shard}{ungraded}{dataset}-{model}.log",
    benchmark:
        "results/benchmarks/sample/{shard}{ungraded}{dataset}-{model}.tsv"
    wildcard_constraints:
        model=targets.any_of(SAMPLED),
        shard=targets.shards(CONFIG.answers.shards),
    priority: 40
    threads: CONFIG.resources.threads
    resources:
        gpu=gpus_to_answer,
        gpus_wanted=gpus_to_answer,
        mem_mb=CONFIG.resources.mem_mb,
        runtime=minutes,
    params:
        settings=settings_of("sample", "{dataset}", "{model}"),
        shard=shard_of(CONFIG.answers.shards),
    message:
        "Sample answers of {wildcards.model} on {wildcards.dataset} {wildcards.shard}"
    shell:
        "python -m orce.runtime.lease {resources.gpu}/{resources.gpus_wanted} --"
        " python -m orce sample --settings {params.settings:q} --prompts {input.prompts} --shard {params.shard}"
        " --out {output.out} 2>&1 | tee {log}"


# The answers already made take the place of samples.
rule import_answers:
    input:
        prompts=sampled_prompts,
    output:
        out="results/{dataset}/{model}/{ungraded}samples.jsonl",
        manifest="results/{dataset}/{model}/{ungraded}samples.manifest.json",
    log:
        "results/logs/import_answers/{ungraded}{dataset}-{model}.log",
    benchmark:
        "results/benchmarks/import_answers/{ungraded}{dataset}-{model}.tsv"
    wildcard_constraints:
        model=targets.any_of(GIVEN),
    priority: QUICK
    localrule: True
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        settings=settings_of("import_answers", "{dataset}", "{model}"),
    message:
        "Take the given answers of {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce import-answers --settings {params.settings:q} --prompts {input.prompts}"
        " --out {output.out} --manifest {output.manifest} 2>&1 | tee {log}"


# Where the configuration has a grader, it grades the answers between sampling and all that reads samples.jsonl. It may group
# the answers by their meaning.
rule grade:
    input:
        prompts=sampled_prompts,
        samples="results/{dataset}/{model}/ungraded-samples.jsonl",
        sealed="results/{dataset}/{model}/ungraded-samples.manifest.json",
        base=grader_llm,
    output:
        verdicts="results/{dataset}/{model}/verdicts.jsonl",
        disagreements="results/{dataset}/{model}/disagreements.jsonl",
        meanings=["results/{dataset}/{model}/meanings.jsonl"] if picking.groups_meanings(CONFIG) else [],
        out="results/{dataset}/{model}/samples.jsonl",
        manifest="results/{dataset}/{model}/samples.manifest.json",
    log:
        "results/logs/grade/{dataset}-{model}.log",
    benchmark:
        "results/benchmarks/grade/{dataset}-{model}.tsv"
    wildcard_constraints:
        dataset=targets.any_of(GRADED),
    priority: 40
    threads: CONFIG.resources.threads
    resources:
        gpu=picking.grading_gpus(CONFIG),
        gpus_wanted=picking.grading_gpus(CONFIG),
        mem_mb=CONFIG.resources.mem_mb,
        runtime=minutes,
    params:
        settings=settings_of("grade", "{dataset}", "{model}"),
    message:
        "Grade the answers of {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce.runtime.lease {resources.gpu}/{resources.gpus_wanted} --"
        " python -m orce grade --settings {params.settings:q} --prompts {input.prompts} --samples {input.samples}"
        " --verdicts {output.verdicts} --disagreements {output.disagreements} --meanings {output.meanings}"
        " --out {output.out} --manifest {output.manifest} 2>&1 | tee {log}"


# The first that can make samples.jsonl makes it. Only graded samples have a grader, and only divided ones are gathered.
ruleorder: grade > import_answers > gather_answers > sample


# kappa, the share of right answers, and the answer that the confidence LLM sees.
rule surrogate:
    input:
        samples="results/{dataset}/{model}/samples.jsonl",
        sealed="results/{dataset}/{model}/samples.manifest.json",
    output:
        "results/{dataset}/{model}/surrogate.csv",
    log:
        "results/logs/surrogate/{dataset}-{model}.log",
    benchmark:
        "results/benchmarks/surrogate/{dataset}-{model}.tsv"
    priority: QUICK
    localrule: True
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        seed=CONFIG.seed,
        reasoning=lambda wildcards: "--reasoning" if reads_reasoning(wildcards.dataset) else "",
        settings=lambda wildcards: to_argument(
            {"seed": CONFIG.seed} | ({"reasoning": True} if reads_reasoning(wildcards.dataset) else {})
        ),
    message:
        "Estimate kappa of {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce surrogate --samples {input.samples} --seed {params.seed} {params.reasoning}"
        " --out {output} 2>&1 | tee {log}"
