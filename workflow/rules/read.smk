# Confidence LLMs that share their base are read by one job at each stage: candidates before DPO, tests at the end.
rule read:
    input:
        requests=lambda wc: request_files(wc, wc.stage),
        sources=lambda wc: request_inputs(wc, wc.stage),
        base=base_weights,
    output:
        touch("results/engines/{weights}/{stage}-{shard}.done"),
    log:
        "results/logs/read/{weights}-{stage}-{shard}.log",
    benchmark:
        "results/benchmarks/read/{weights}-{stage}-{shard}.tsv"
    priority: 20
    conda:
        "../../envs/gpu.yaml"
    threads: config["resources"]["threads"]
    resources:
        gpu=config["gpus"],
        gpus_wanted=config["gpus"],
        mem_mb=config["resources"]["mem_mb"],
        runtime=config["resources"]["runtime"],
    params:
        speed=settings.to_argument(settings.reader(config)),
        shards=config["confidence"]["shards"],
    message:
        "Read the confidence LLMs of {wildcards.weights}: {wildcards.stage} (shard {wildcards.shard})"
    shell:
        "python -m orce.runtime.lease {resources.gpu}/{resources.gpus_wanted} -- python -m orce read --requests {input.requests}"
        " --shard {wildcards.shard}/{params.shards} --speed {params.speed:q} 2>&1 | tee {log}"
