# ORCE: sample answers, estimate their correctness likelihood, teach a second model to state it, evaluate, tabulate.
# One file a stage, in the order of the pipeline; every rule's command is a step of `python -m orce`.
from snakemake.utils import min_version

min_version("9.19")


# Rules that ask for no GPU take seconds: under a scheduler they run where Snakemake runs, instead of queueing each.
localrules:
    convert_model,
    prompts,
    overlap,
    request,
    gather_samples,
    surrogate,
    candidates,
    candidates_again,
    pairs,
    pairs_again,
    ask_confidence,
    state_confidence,
    agree_confidence,
    evaluate,
    tables,
    figures,
    run_page,
    paper_tables,
    all,


configfile: "config.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/models.smk"
include: "workflow/rules/prompts.smk"
include: "workflow/rules/answer.smk"
include: "workflow/rules/surrogate.smk"
include: "workflow/rules/sft.smk"
include: "workflow/rules/read.smk"
include: "workflow/rules/candidates.smk"
include: "workflow/rules/pairs.smk"
include: "workflow/rules/dpo.smk"
include: "workflow/rules/conftuner.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/figures.smk"


from orce.runtime import preflight


onstart:  # and so not in a dry run
    try:
        preflight.check(workflow)
    except BadInput as error:
        raise WorkflowError(str(error))
