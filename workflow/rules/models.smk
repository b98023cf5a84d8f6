rule convert_model:
    output:
        "results/models/{model}/manifest.json",
    log:
        "results/logs/convert_model/{model}.log",
    benchmark:
        "results/benchmarks/convert_model/{model}.tsv"
    wildcard_constraints:
        model="|".join(map(re.escape, MADE)) or "(?!)",
    priority: QUICK
    threads: CONFIG.resources.threads
    resources:
        **HEAVY,
    params:
        package=lookup("models/{model}/source/package", within=config),
        file=lookup("models/{model}/source/file", within=config),
        folder=subpath(output[0], parent=True),
    message:
        "Convert the weights of {wildcards.model}"
    shell:
        logged(
            "python -m orce convert-model --package {params.package:q} --file {params.file:q} --out {params.folder:q}"
        )
