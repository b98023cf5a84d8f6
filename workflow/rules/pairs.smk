# Section 3.3: for each prompt, the candidates with the highest and the lowest reward.
rule pairs:
    input:
        surrogate="results/{dataset}/{model}/surrogate.csv",
        prompts=["results/{dataset}/prompts/rl.jsonl"],
        candidates="results/{dataset}/{model}/{round}candidates.jsonl",
        manifest="results/{dataset}/{model}/{round}candidates.manifest.json",
    output:
        pairs="results/{dataset}/{model}/{round}pairs/{reward}.jsonl",
        manifest="results/{dataset}/{model}/{round}pairs/{reward}.manifest.json",
    log:
        "results/logs/pairs/{dataset}-{model}-{round}{reward}.log",
    benchmark:
        "results/benchmarks/pairs/{dataset}-{model}-{round}{reward}.tsv"
    priority: QUICK
    resources:
        **ROOMY,
    params:
        **inputs_and(of("pairs"), "dataset", "model", "reward"),
        # Only the first round's candidates come from DPO's reference, the warm start.
        reference=lambda wc: [] if wc.round else ["--from-reference"],
    message:
        "Select pairs by reward {wildcards.reward} for {wildcards.model} on {wildcards.dataset}"
    shell:
        "python -m orce pairs --settings {params.settings:q} {params.files:q} {params.reference:q} --out {output.pairs:q} --manifest {output.manifest:q} 2>&1 | tee {log:q}"
