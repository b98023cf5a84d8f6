rule prompts:
    output:
        prompts="results/{dataset}/prompts/{split}.jsonl",
        manifest="results/{dataset}/prompts/{split}.manifest.json",
    log:
        "results/logs/prompts/{dataset}-{split}.log",
    benchmark:
        "results/benchmarks/prompts/{dataset}-{split}.tsv"
    conda:
        "../../envs/gpu.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        settings=argument("prompts"),
    message:
        "Freeze the {wildcards.split} prompts of {wildcards.dataset}"
    shell:
        "python -m orce prompts --settings {params.settings:q} --split {wildcards.split}"
        " --out {output.prompts} --manifest {output.manifest} 2>&1 | tee {log}"
