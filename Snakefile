# ORCE: sample answers, estimate their correctness likelihood, teach a second model to state it, evaluate, tabulate.
# One file a stage, in the order of the pipeline; every rule's command is a step of `python -m orce`.
from snakemake.utils import min_version

min_version("9.19")


include: "workflow/rules/config.smk"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/models.smk"
include: "workflow/rules/prompts.smk"
include: "workflow/rules/sample.smk"
include: "workflow/rules/elicit.smk"
include: "workflow/rules/surrogate.smk"
include: "workflow/rules/sft.smk"
include: "workflow/rules/candidates.smk"
include: "workflow/rules/pairs.smk"
include: "workflow/rules/dpo.smk"
include: "workflow/rules/state.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/figures.smk"


# The default target stands here: Snakemake forgets that of an included file.
rule paper_tables:
    default_target: True
    input:
        rules.tables.input.tables,
        rules.tables.output,
        # Asked for by name, so that whatever was deleted is made again although the tables are there.
        matrix.files(config, TABLES),
        matrix.overlaps(config, TABLES),
    message:
        "All tables are in paper_tables/"


rule all:
    input:
        rules.paper_tables.input,
        rules.figures.output,
        rules.run_page.output,


# Without it the message for a misspelt target would be Snakemake's, which cannot say what there is.
rule unknown_target:
    input:
        lambda wc: hints.refuse(config, f"results/{wc.unknown}"),
    output:
        "results/{unknown}",
    wildcard_constraints:
        unknown=hints.unknown(config, REGISTRY),


# Rules that ask for no GPU take seconds: under a scheduler they run where Snakemake runs, instead of queueing each.
localrules:
    convert_model,
    prompts,
    overlap,
    sample,
    elicit,
    surrogate,
    candidates,
    pairs,
    state,
    agree,
    evaluate,
    table,
    tables,
    figures,
    run_page,
    paper_tables,
    all,
    unknown_target,


from orce.runtime import preflight


onstart:  # and so not in a dry run
    try:
        preflight.check(workflow)
    except BadInput as error:
        raise WorkflowError(str(error))
