# Where the configuration divides a stage into shards, shards/0/FILE, shards/1/FILE and so on, one job joins them.
rule gather_answers:
    input:
        expand("results/{{dataset}}/{{model}}/shards/{shard}/{{file}}.jsonl", shard=range(CONFIG.answers.shards)),
    output:
        out="results/{dataset}/{model}/{file}.jsonl",
        manifest="results/{dataset}/{model}/{file}.manifest.json",
    log:
        "results/logs/gather_answers/{dataset}-{model}-{file}.log",
    benchmark:
        "results/benchmarks/gather_answers/{dataset}-{model}-{file}.tsv"
    wildcard_constraints:
        file=targets.shard_files(CONFIG.answers.shards, "{ungraded}samples", "{prompted}/confidences", **WILDCARDS),
    priority: QUICK
    localrule: True
    resources:
        mem_mb=8000,
        runtime=60,
    message:
        "Gather {output.out}"
    shell:
        "python -m orce gather --shards {input} --out {output.out} --manifest {output.manifest} 2>&1 | tee {log}"


rule gather_readings:
    input:
        expand("results/{{dataset}}/{{model}}/shards/{shard}/{{file}}.jsonl", shard=range(CONFIG.confidence.shards)),
    output:
        out="results/{dataset}/{model}/{file}.jsonl",
        manifest="results/{dataset}/{model}/{file}.manifest.json",
    log:
        "results/logs/gather_readings/{dataset}-{model}-{file}.log",
    benchmark:
        "results/benchmarks/gather_readings/{dataset}-{model}-{file}.tsv"
    wildcard_constraints:
        file=targets.shard_files(
            CONFIG.confidence.shards, "{round}candidates", "{scored}", "states/{states}", **WILDCARDS
        ),
    priority: QUICK
    localrule: True
    resources:
        mem_mb=8000,
        runtime=60,
    message:
        "Gather {output.out}"
    shell:
        "python -m orce gather --shards {input} --out {output.out} --manifest {output.manifest} 2>&1 | tee {log}"


# The shards of stated confidences keep all that was read, and joining them reads one value out.
rule gather_stated:
    input:
        expand(
            "results/{{dataset}}/{{model}}/shards/{shard}/{{stated}}/confidences.jsonl",
            shard=range(CONFIG.confidence.shards),
        ),
    output:
        out="results/{dataset}/{model}/{stated}/confidences.jsonl",
        manifest="results/{dataset}/{model}/{stated}/confidences.manifest.json",
    log:
        "results/logs/gather_stated/{dataset}-{model}-{stated}.log",
    benchmark:
        "results/benchmarks/gather_stated/{dataset}-{model}-{stated}.tsv"
    wildcard_constraints:
        stated=targets.shard_files(CONFIG.confidence.shards, "{stated}", **WILDCARDS),
    priority: QUICK
    localrule: True
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        readout=CONFIG.evaluation.readout,
    message:
        "Gather {output.out}"
    shell:
        "python -m orce gather --shards {input} --readout {params.readout}"
        " --out {output.out} --manifest {output.manifest} 2>&1 | tee {log}"
