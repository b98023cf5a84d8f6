# Where the configuration divides a stage into shards, one job joins them. With one shard, the default, there is nothing here.
if ANSWERS.shards > 1:

    localrules:
        gather_samples,
        gather_elicited,

    rule gather_samples:
        input:
            ANSWERS.parts("shards/{ungraded}samples"),
        output:
            out="results/{dataset}/{model}/{ungraded}samples.jsonl",
            manifest="results/{dataset}/{model}/{ungraded}samples.manifest.json",
        log:
            "results/logs/gather_samples/{ungraded}{dataset}-{model}.log",
        benchmark:
            "results/benchmarks/gather_samples/{ungraded}{dataset}-{model}.tsv"
        wildcard_constraints:
            dataset=hints.sampled(CONFIG),
        priority: QUICK
        threads: 1
        resources:
            **LIGHT,
        message:
            "Gather {output.out}"
        shell:
            GATHER

    use rule gather_samples as gather_elicited with:
        input:
            ANSWERS.parts("shards/{prompted}"),
        output:
            out="results/{dataset}/{model}/{prompted}/confidences.jsonl",
        log:
            "results/logs/gather_elicited/{dataset}-{model}-{prompted}.log",
        benchmark:
            "results/benchmarks/gather_elicited/{dataset}-{model}-{prompted}.tsv"


if READINGS.shards > 1:

    localrules:
        gather_candidates,
        gather_stated,
        gather_likelihoods,
        gather_states,

    rule gather_candidates:
        input:
            READINGS.parts("{round}shards/candidates"),
        output:
            out="results/{dataset}/{model}/{round}candidates.jsonl",
            manifest="results/{dataset}/{model}/{round}candidates.manifest.json",
        log:
            "results/logs/gather_candidates/{dataset}-{model}-{round}all.log",
        benchmark:
            "results/benchmarks/gather_candidates/{dataset}-{model}-{round}all.tsv"
        priority: QUICK
        threads: 1
        resources:
            **ROOMY,
        message:
            "Gather {output.out}"
        shell:
            GATHER

    use rule gather_candidates as gather_likelihoods with:
        input:
            READINGS.parts("shards/{scored}"),
        output:
            out="results/{dataset}/{model}/{scored}.jsonl",
        log:
            "results/logs/gather_likelihoods/{dataset}-{model}-{scored}.log",
        benchmark:
            "results/benchmarks/gather_likelihoods/{dataset}-{model}-{scored}.tsv"

    use rule gather_candidates as gather_states with:
        input:
            READINGS.parts("shards/states-{states}"),
        output:
            out="results/{dataset}/{model}/states/{states}.jsonl",
        log:
            "results/logs/gather_states/{dataset}-{model}-{states}.log",
        benchmark:
            "results/benchmarks/gather_states/{dataset}-{model}-{states}.tsv"

    rule gather_stated:
        input:
            READINGS.parts("shards/{stated}"),
        output:
            out="results/{dataset}/{model}/{stated}/confidences.jsonl",
        log:
            "results/logs/gather_stated/{dataset}-{model}-{stated}.log",
        benchmark:
            "results/benchmarks/gather_stated/{dataset}-{model}-{stated}.tsv"
        priority: QUICK
        threads: 1
        resources:
            **LIGHT,
        params:
            readout=CONFIG.evaluation.readout,
        message:
            "Gather {output.out}"
        shell:
            "python -m orce gather --shards {input:q} --readout {params.readout:q} --out {output.out:q} 2>&1 | tee {log:q}"
