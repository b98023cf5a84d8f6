# ORCE: sample answers, estimate their correctness likelihood, teach a second model to state it, evaluate, tabulate.
# One file per stage, in the order of the paper's Figure 1; every rule runs one step of `python -m orce`.
from snakemake.utils import min_version

min_version("9.19")


include: "workflow/rules/config.smk"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/models.smk"
include: "workflow/rules/prompts.smk"
# Section 3.1: answers, and how often they are right.
include: "workflow/rules/sample.smk"
include: "workflow/rules/grade.smk"
include: "workflow/rules/elicit.smk"
include: "workflow/rules/surrogate.smk"
# Section 3.2: the confidence LLM learns to state it.
include: "workflow/rules/sft.smk"
# Section 3.3: its statements are put into order.
include: "workflow/rules/candidates.smk"
include: "workflow/rules/pairs.smk"
include: "workflow/rules/dpo.smk"
include: "workflow/rules/tune.smk"
# Section 4: the test, what it is compared with, metrics, tables and pictures.
include: "workflow/rules/state.smk"
include: "workflow/rules/baselines.smk"
include: "workflow/rules/probes.smk"
include: "workflow/rules/gather.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/figures.smk"


# The default target must be here: Snakemake ignores default_target in an included file.
rule paper_tables:
    default_target: True
    input:
        rules.tables.input.tables,
        rules.tables.output,
        # Listed explicitly, so that deleted files are made again even if the tables exist.
        graph.files(CONFIG, TABLES),
        graph.overlaps(CONFIG, TABLES),
    message:
        "All tables are in paper_tables/"


rule all:
    input:
        rules.paper_tables.input,
        rules.figures.output,
        rules.metrics_csv.output,
    message:
        "Tables, figures and metrics.csv are there"


# Catches misspelt targets: Snakemake's own message could not list the valid names.
rule unknown_target:
    input:
        refuse,
    output:
        "results/{unknown}",
    wildcard_constraints:
        unknown=targets.unknown(CONFIG, REGISTRY),


# Rules without a GPU take seconds: under a scheduler they run beside Snakemake instead of waiting in the queue.
localrules:
    convert_model,
    prompts,
    overlap,
    import_answers,
    surrogate,
    pairs,
    derive,
    fit,
    import_confidences,
    choose,
    tune,
    evaluate,
    table,
    tables,
    figures,
    metrics_csv,
    paper_tables,
    all,
    unknown_target,


from orce.runtime import preflight


onstart:  # not in a dry run
    try:
        preflight.check(workflow)
    except BadInput as error:
        raise WorkflowError(str(error))
