"""Every block of commands in README and docs: which test runs it, or why none does.

A block that is not in the table is a mistake, and so is a line of the table without a block. A block that needs what no test
has says so on its page (`<!-- not run: ... -->`, which test_docs.py reads). Of the others, test_docs.py checks each command:
Snakemake by a dry run, our programs by their arguments, make by `make -n`; and that the files exist.
"""

import pages
import pytest
from conftest import ROOT

# Why a block is checked, and not run.
PAPER = "the paper's models and data sets, on GPUs"
GPU = "a GPU; on a CPU: test_gpu_check.py"
SERVER = "a server's key"
DEMO = "the demo takes ten minutes; what it prints comes into README by make images"
HOURS = "takes from half an hour to days"
INSTALLS = "installs gigabytes of CUDA packages"
FINISHED = "reads the results of the demo"
OWN = "reads files or answers of the reader's own"
REASONS = (PAPER, GPU, SERVER, DEMO, HOURS, INSTALLS, FINISHED, OWN)

AFTER = "docs:test_the_commands_after_the_demo_run_as_they_are_written"
DRY = "docs:test_every_command_runs"
GIVEN = "given:test_the_page_runs_as_it_stands"
TUTORIAL = "tutorial:test_the_last_commands_compare_the_methods"
EXTENDING = "extending:test_the_table_has_a_row_for_each"
PLAN = "plan:test_the_paper_is_estimated_before_anything_is_there"
RECORDED = "docs:test_a_copy_with_its_records_runs_only_what_a_changed_setting_concerns"
# {page: {first line of a block: FILE:TEST that runs it, as written or with files of its own; or a reason}}
BLOCKS = {
    "README.md": {
        "make demo": DEMO,
        "import orce": "door:test_the_block_on_the_first_page_runs_as_it_stands",
        'echo \'{"question": "What is the capital of Qatar?", "answer": "Doha"}\' \\': AFTER,
        "python -m orce plan": "docs:test_the_readme_shows_what_its_commands_print",
        "snakemake --cores all --resources gpu=4 -- paper_tables": PAPER,
        "pip install -r envs/gpu.txt": INSTALLS,
    },
    "downloads.md": {"pip install --no-deps --require-hashes -r envs/gpu.lock": INSTALLS},
    "evidence.md": {"python evidence/recompute.py": "recompute:test_the_pages_say_what_the_items_give"},
    "extending.md": {
        "# my/larger.py": EXTENDING,
        "# my/percent.py": EXTENDING,
        "# my/lead.py": EXTENDING,
        "# my/right_or_wrong.py": EXTENDING,
        "# my/brier.py": EXTENDING,
        "snakemake --cores all --resources gpu=1 --configfile mine.yaml": EXTENDING,
    },
    "field.md": {"snakemake --cores all --configfile config/demo.yaml config/field.yaml -- all": HOURS},
    "given.md": {
        "snakemake --cores all --configfile given.yaml -- paper_tables": GIVEN,
        'grep -h \'"filter": "flexible-extract"\' samples_gsm8k_*.jsonl > gsm8k.jsonl': GIVEN,
        "python -m orce score --method given --in sheet.csv --fields answer=reply_1 correct=right_1 confidence=sure --out sheet.jsonl": GIVEN,
        "python -m orce score --method consistency --in samples.jsonl --out scored.jsonl --metrics metrics.json": GIVEN,
    },
    "measure.md": {
        "import orce": OWN,
        'fitted = orce.calibrate(table.confidence("likelihood"), table.correct("likelihood"), "platt", risk=0.1)': OWN,
        "orce.of_response(client.chat.completions.create(model=..., messages=..., logprobs=True))": OWN,
    },
    "one-cell.md": {
        "snakemake --cores all -- results/mmlu/llama3-8b/orce/metrics.json": PAPER,
        "snakemake --workflow-profile workflow/profiles/demo --cores all -- results/arithmetic/smollm2/orce/metrics.json": DEMO,
        "snakemake --cores all -- results/mmlu/llama3-8b/surrogate.csv": PAPER,
        "snakemake --cores all -f -- results/mmlu/llama3-8b/orce/metrics.json": "docs:test_a_stage_of_a_cell_is_redone_with_what_follows_it",
        "snakemake -n --cores all --configfile mine.yaml -- results/mmlu/llama3-8b/orce/metrics.json": "docs:test_the_table_of_changed_settings_is_that_of_the_workflow",
        "snakemake -n --cores all --directory runs/beta03 --configfile config.yaml mine.yaml -- results/mmlu/llama3-8b/orce/metrics.json": RECORDED,
        "mkdir -p runs/beta03": RECORDED,
        "python -m orce plan --configfile mine.yaml": PLAN,
        "snakemake --cores all --touch -F -- paper_tables": "docs:test_an_unpacked_archive_notices_changed_settings_after_one_command",
    },
    "one-node.md": {
        "snakemake --cores all --resources gpu=4": PAPER,
        "snakemake -n --cores all --resources gpu=4": DRY,
        "CUDA_VISIBLE_DEVICES=0,1 snakemake --cores all --resources gpu=2 -- paper_tables": PAPER,
        "snakemake --cores all --resources gpu=4 --configfile shards.yaml -- results/mmlu/llama3-8b/orce/metrics.json": PAPER,
    },
    "performance.md": {"python -m orce plan": PLAN, "make gpu-check": GPU, "make bench": HOURS},
    "score.md": {
        "python -m orce score --model results/worldfacts/smollm2/dpo --in pairs.jsonl --out scored.jsonl": AFTER,
        "from orce import score": AFTER,
        "python -m orce score --base results/models/smollm2 --in pairs.jsonl": AFTER,
        "python -m orce score --model results/worldfacts/smollm2/dpo --in facts.jsonl \\": AFTER,
        "from orce.metrics.selective import threshold_for_risk": AFTER,
    },
    "server.md": {
        "snakemake -n --cores all --configfile server.yaml -- paper_tables": "docs:test_the_page_on_servers_is_planned_and_a_server_without_a_judge_is_refused",
        "snakemake --cores all --resources gpu=1 --configfile server.yaml -- paper_tables": SERVER,
    },
    "troubleshooting.md": {
        "python -m orce plan --configfile mine.yaml": PLAN,
        "python -m orce summary --tables paper_tables": "compare:test_it_says_what_was_made_where_in_what_time_and_what_was_not_read",
    },
    "tutorial.md": {
        '"""Chemical symbols: the answer is a short sentence that ends with one."""': TUTORIAL,
        "python - <<'END'": TUTORIAL,
        "snakemake -n --configfile config/demo.yaml my/elements.yaml -- paper_tables": TUTORIAL,
        "snakemake --cores all --configfile config/demo.yaml my/elements.yaml --rerun-incomplete -- paper_tables": TUTORIAL,
        "cat paper_tables/elements.tex": TUTORIAL,
        "cut -d, -f5 results/elements/smollm2/surrogate.csv | sort | uniq -c": TUTORIAL,
        "head -n 3 results/elements/smollm2/orce/confidences.jsonl": TUTORIAL,
    },
    "which.md": {"python docs/frontier.py": "field:test_the_picture_has_every_method_of_the_stored_metrics"},
}


def commands() -> set[tuple[str, str]]:
    """(page, first line) of every block of commands or Python that its page does not mark."""
    blocks = [block for page in pages.PAGES for block in pages.blocks(page) if not block.reason]
    python = ("from ", "import ")
    shown = [one for one in blocks if one.language in ("bash", "sh", "python") or one.text.startswith(python)]
    return {(one.page, one.text.strip().partition("\n")[0].partition("  #")[0].strip()) for one in shown}


LISTED = [(page, first, how) for page, blocks in BLOCKS.items() for first, how in blocks.items()]


def test_every_block_of_commands_is_in_the_table_and_nothing_else():
    assert commands() == {(page, first) for page, first, _ in LISTED}


@pytest.mark.parametrize("how", sorted({how for _, _, how in LISTED} - {*REASONS}))
def test_the_test_that_runs_a_block_exists(how):
    name, _, test = how.partition(":")
    assert f"\ndef {test}(" in (ROOT / "tests" / f"test_{name}.py").read_text()
