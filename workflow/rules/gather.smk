# Where the configuration divides a stage into shards, one job joins them. With one shard, the default, there is nothing here.
GATHERED = {  # the files of the shards and the file of all, in the folder of the cell
    "samples": (ANSWERS, "shards/{ungraded}samples", "{ungraded}samples"),
    "elicited": (ANSWERS, "shards/{prompted}", "{prompted}/confidences"),
    "candidates": (READINGS, "{round}shards/candidates", "{round}candidates"),
    "stated": (READINGS, "shards/{stated}", "{stated}/confidences"),
    "likelihoods": (READINGS, "shards/{scored}", "{scored}"),
    "states": (READINGS, "shards/states-{states}", "states/{states}"),
}

for kind, (divided, part, whole) in GATHERED.items():
    if divided.shards == 1:
        continue
    stem = f"{{dataset}}-{{model}}-{part.replace('shards/', '')}"  # names its log
    readout = {"readout": CONFIG.evaluation.readout} if kind == "stated" else {}
    sampled = {"dataset": targets.answered(CONFIG, given=False)} if kind == "samples" else {}

    rule:
        name:
            f"gather_{kind}"
        input:
            shards=[f"results/{{dataset}}/{{model}}/{part}-{shard}.jsonl" for shard in range(divided.shards)],
        output:
            **Shards(1).output(whole, part, manifest=kind in ("samples", "candidates")),
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
