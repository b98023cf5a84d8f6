# Where the configuration divides a stage into shards, one job joins them. With one shard, the default, there is nothing here.
for name, (kind, part) in SHARDED.items():
    if not divided(name):
        continue
    numbers = range(graph.shards(CONFIG, name))
    stem = f"{{dataset}}-{{model}}-{part.replace('shards/', '')}"  # names its log
    readout = {"readout": CONFIG.evaluation.readout} if name == "state" else {}
    sampled = {"dataset": targets.answered(CONFIG, given=False)} if name == "sample" else {}

    rule:
        name:
            f"gather_{kind}"
        input:
            shards=[makes(name)["out"].replace("{shard}", str(number)) for number in numbers],
        output:
            **makes(name, whole=True),
        log:
            f"results/logs/gather_{kind}/{stem}.log",
        benchmark:
            f"results/benchmarks/gather_{kind}/{stem}.tsv"
        wildcard_constraints:
            **sampled,
        priority: QUICK
        localrule: True
        resources:
            **LIGHT,
        params:
            **job(f"gather_{kind}", **readout),
        message:
            "Gather {output.out}"
        shell:
            RUN
