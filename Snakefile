# ORCE: sample answers, estimate their correctness likelihood, teach a second model to state it, evaluate, tabulate.
# The rules stand in the order of the paper's Figure 1; each runs the command of `python -m orce` that its shell names.
from snakemake.utils import min_version

min_version("9.19")


include: "workflow/rules/common.smk"


report: "workflow/report/workflow.rst"


include: "workflow/rules/prompts.smk"
# Section 3.1: answers, and how often they are right.
include: "workflow/rules/answers.smk"
include: "workflow/rules/gather.smk"
# Sections 3.2 and 3.3: the confidence LLM learns to state it, and its statements are put into order.
include: "workflow/rules/judge.smk"
include: "workflow/rules/tune.smk"
# Section 4: what it is compared with, metrics, tables and pictures.
include: "workflow/rules/confidences.smk"
include: "workflow/rules/results.smk"


# The default target must be here: Snakemake ignores default_target in an included file.
rule paper_tables:
    default_target: True
    input:
        rules.tables.input.tables,
        rules.tables.output,
        metrics_of(*TABLES),
        made_on_the_way(),
        expand("results/{dataset}/overlap.json", dataset=sorted({dataset for dataset, _, _ in ROWS})),
    message:
        "All tables are in paper_tables/"


rule all:
    input:
        rules.paper_tables.input,
        rules.figures.output,
        rules.metrics_csv.output,
    message:
        "Tables, figures and metrics.csv are there"


if workflow.is_main_process:
    same_settings.add_checks(
        {
            # Snakemake's own message for a misspelt target could not name the valid ones.
            same_settings.TARGETS_ARE_KNOWN: lambda: checked(
                targets.refuse_unknown, CONFIG, workflow.dag_settings.targets, workflow.rules
            ),
            same_settings.PLAN_IS_MADE: lambda: checked(same_settings.check_plan, workflow, CONFIG),
        }
    )


onstart:  # not in a dry run
    checked(preflight.check, workflow, CONFIG)
