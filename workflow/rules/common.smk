# The configuration, checked, and what the rules share: a job's settings, what it asks of the machine, and the few inputs that
# depend on the configuration. It is config.yaml, then the files of --configfile; the last one wins.
import gc
import itertools
import re
import sys
from pathlib import Path
from shlex import quote

from snakemake.utils import update_config

# The objects of Snakemake and its libraries live as long as this process: each full collection would walk them again, a tenth of
# a second. Frozen once in a process: what a run leaves may be collected in the next.
if not gc.get_freeze_count():
    gc.freeze()

# Not workflow.basedir: that is another folder where workflow/Snakefile was called.
CHECKOUT = Path(str(workflow.current_basedir)).parents[1]
sys.path.insert(0, str(CHECKOUT / "workflow"))

from orce import methods, stages
from orce.config import same_settings
from orce.apps import plan
from orce.config import check, layout, picking, targets
from orce.settings import load
from orce.config.cells import Cell, reward_and_round, round_folder, round_start
from orce.errors import BadInput, printable
from orce.runtime import preflight
from orce.settings.stage import PAPER_REWARD, to_argument


def refuse(error):
    """End the run: below a WorkflowError Snakemake prints lines of this code. Each line of the refusal names the file that
    sets its key."""
    files = [path for path in ("config.yaml", *workflow.overwrite_configfiles) if Path(path).exists()]
    for line in str(error).split("\n"):
        logger.error(load.name_file(line, files, workflow.config_settings.config))
    raise SystemExit(1)


try:
    if Path("config.yaml").exists():
        load.read_mapping("config.yaml")
except BadInput as error:
    refuse(error)


configfile: "config.yaml"


update_config(config, load.as_in_a_file(workflow.config_settings.config))
try:
    if unset := load.missing_keys_message(config, Path.cwd()):
        raise BadInput(unset)
    if workflow.is_main_process:
        given = [Path(path) for path in workflow.overwrite_configfiles]
        # Snakemake takes the last of two equal keys, and forgets in which order two keys of a source came.
        whole = [path for path in (Path("config.yaml"), *given) if path.suffix != ".json" and path.exists()]
        load.read_in_order(whole)
        for note in load.late_preset_lines(given, CHECKOUT / "config"):
            logger.warning(printable(note))
    CONFIG = check.check(config)
    check.data(CONFIG)
    if workflow.is_main_process:
        check.rows(CONFIG)
    library = check.path_with(CHECKOUT / "workflow")
    interpreter = check.path_with(Path(CONFIG.python or sys.executable).parent)
except BadInput as error:
    refuse(error)

METHODS = methods.of(CONFIG)
TABLES = CONFIG.paper_tables
WILDCARDS = targets.wildcards(CONFIG)
# Models with answers already made, which then are so for every data set.
GIVEN = [name for name, model in CONFIG.models.items() if model.answers]
SAMPLED = [name for name in CONFIG.models if name not in GIVEN]
GRADED = [name for name, dataset in CONFIG.datasets.items() if dataset.grading == "grader"]


wildcard_constraints:
    **WILDCARDS,


# The interpreter, the library and the speed settings are exported here instead of being part of each command, so that
# changing them reruns nothing.
EXPORTED = (
    f"export PATH={quote(interpreter)}:$PATH PYTHONPATH={quote(library)} PYTHONUNBUFFERED=1"
    f" ORCE_SPEED={quote(to_argument(picking.speed_settings(CONFIG)))} ORCE_FETCHED=; "
)
shell.prefix(
    "set -euo pipefail; "
    + EXPORTED.replace("{", "{{").replace("}", "}}")
    # SLURM sends SIGTERM to every process of a job: tee must outlive the step that writes to it.
    + 'tee() {{ (trap "" TERM; exec tee "$@"); }}; '
)

# What a job asks for. Snakemake counts GPUs and gives none away: a job with a model starts with `python -m orce.runtime.lease`,
# which leases them. It cuts `gpu` down to --resources gpu=N too; the lease compares it with `gpus_wanted`, and refuses.
QUICK = 50  # priority of jobs of seconds: a row of a table is there as soon as its model has done its part
TORCHRUN = f"-m torch.distributed.run --standalone --nproc-per-node {CONFIG.training.gpus}"
LAUNCHER = TORCHRUN if CONFIG.training.gpus > 1 else ""  # of a training


def gpus_to_answer(wildcards):
    """None where the answer LLM is on a server."""
    return 0 if picking.on_server(CONFIG, wildcards.model) else CONFIG.gpus


def minutes(wildcards, input, attempt, rulename):
    """The time limit of a job with a model: the configuration's, or three times the estimate of `orce plan`."""
    section = CONFIG.answers if rulename in ("sample", "elicit") else CONFIG.confidence
    shards = section.shards if wildcards.get("shard") else 1
    limit = CONFIG.resources.runtime or plan.minutes(CONFIG, rulename, dict(wildcards.items()), input, shards)
    return attempt * limit


# Settings and shards


def settings_of(stage, *names):
    """A rule's parameter: what its stage reads of the configuration, as JSON; names of wildcards, such as "{dataset}".

    A job runs again when this changes. Local files that the settings name are in it with their digests.
    """
    return lambda wildcards: as_json(stages.pick_settings(stage, CONFIG, *(name.format(**wildcards) for name in names)))


def as_json(chosen):
    made_by_a_rule = [f"results/models/{name}" for name in CONFIG.models if "package" in CONFIG.models[name].source]
    return to_argument(picking.with_contents(chosen, made=made_by_a_rule))


def shard_of(number):
    """A rule's parameter: the job's I/N, where the configuration divides its stage into N shards, shards/I/FILE."""
    return lambda wildcards: f"{wildcards.shard.split('/')[1]}/{number}" if wildcards.shard else ""


def reads_reasoning(dataset):
    """Whether the confidence LLM reads whole replies, which are kept then."""
    return CONFIG.datasets[dataset].judge_reads == "reasoning"


# Weights and prompts


def weights_of(model):
    """The weights of a model, if a rule makes or fetches them."""
    return picking.weights_to_wait_for(CONFIG, model) or []


def answer_llm(wildcards):
    return weights_of(wildcards.model)


def base_llm(wildcards):
    """The model that becomes the confidence LLM: `confidence` of the answer LLM, by default itself."""
    return weights_of(picking.judge_base(CONFIG, wildcards.model))


def base_llm_of_row(wildcards):
    """In a transfer, the model that became the confidence LLM of another answer LLM."""
    return weights_of(picking.judge_base(CONFIG, METHODS.parse(wildcards.stated).source or wildcards.model))


def grader_llm(wildcards):
    return weights_of(CONFIG.grading.model) if CONFIG.grading.model else []


def prompts_of(dataset, splits):
    return expand("results/{dataset}/prompts/{split}.jsonl", dataset=dataset, split=splits)


def sampled_prompts(wildcards):
    """Of the splits that the answer LLM is sampled on: those of the data set, or the test alone (`trains: false`)."""
    return prompts_of(wildcards.dataset, picking.sampled_splits(CONFIG, wildcards.dataset, wildcards.model))


def encoded_prompts(wildcards):
    """Hidden states are read where something is trained or tested."""
    splits = picking.sampled_splits(CONFIG, wildcards.dataset, wildcards.model)
    return prompts_of(wildcards.dataset, [split for split in splits if split != "validation"])


def training_prompts(dataset, splits=picking.TRAINING_SPLITS):
    """Of the data set whose confidence LLMs judge this one: itself, or another one out of domain."""
    home = picking.training_dataset(CONFIG, dataset)
    return prompts_of(home, [split for split in splits if split in CONFIG.datasets[home].splits])


# Rounds of DPO. Round 1 samples from the warm start, for all rewards at once, and its files are in the folder of the cell.
# A later round is in roundN/REWARD/ and starts from what the round before has trained, roundN/REWARD/start. The last round
# trains dpo/, or dpo-REWARD/.


def start_of_round(wildcards):
    """The confidence LLM from which the candidates of a round are sampled."""
    start = f"{wildcards.round}start" if wildcards.round else "sft"
    return f"results/{wildcards.dataset}/{wildcards.model}/{start}/manifest.json"


def round_of_alignment(wildcards):
    """The pairs that an alignment is trained on, and the confidence LLM that it starts from."""
    cell = f"results/{wildcards.dataset}/{wildcards.model}"
    reward, number = reward_and_round(wildcards.aligned)
    number = number or CONFIG.dpo.rounds
    pairs = f"{cell}/{round_folder(reward, number)}pairs/{reward}"
    start = f"{cell}/{round_start(reward, number)}/manifest.json"
    return {"pairs": f"{pairs}.jsonl", "sealed": f"{pairs}.manifest.json", "start": start}


# Whether the first candidates come with DPO's reference for all rounds and rewards: an adapter's, whose weights the reader can
# keep apart. In float32 what the candidates were sampled with is the reference.
KEEPS_REFERENCE = plan.keeps_reference(CONFIG)


def first_candidates(wildcards):
    """Those that later rounds take DPO's reference from."""
    path = f"results/{wildcards.dataset}/{wildcards.model}/candidates.jsonl"
    return [path] if KEEPS_REFERENCE and wildcards.round else []


# Confidences


def trained_llms(dataset, model, row):
    """(cell, folder) of each trained confidence LLM below a row. Out of domain, and in a transfer, another cell has it."""
    weights = [picking.judge_weights(CONFIG, dataset, model, leaf) for leaf in METHODS.leaves(row)]
    return list(filter(None, weights))


def confidence_llms(dataset, model, row):
    """The manifests of the trained confidence LLMs below a row, each once."""
    trained = trained_llms(dataset, model, row)
    return list(dict.fromkeys(f"{cell.folder}/{name}/manifest.json" for cell, name in trained))


def asked_samples(wildcards):
    """The greedy answers, for a prompted method that asks about them."""
    samples = f"results/{wildcards.dataset}/{wildcards.model}/samples"
    asks = METHODS.get(wildcards.prompted).ask
    return {"samples": f"{samples}.jsonl", "sealed": f"{samples}.manifest.json"} if asks else {"samples": []}


def read_likelihoods(file):
    """A file of log-probabilities, for the measured methods that read it, unless those of the model's server are enough."""

    def read(wildcards):
        method = METHODS.get(wildcards.measured)
        served = method.logprobs_suffice and picking.gives_logprobs(CONFIG, wildcards.model)
        reads = file in method.likelihoods and not served
        return f"results/{wildcards.dataset}/{wildcards.model}/{file}.jsonl" if reads else []

    return read


def of_calibration_set(path):
    """A file of the data set that calibrations are fitted on."""
    return lambda wildcards: path.format(
        **{**wildcards, "dataset": picking.calibration_dataset(CONFIG, wildcards.dataset)}
    )


def members(wildcards):
    """The confidences of the methods that a combination is of."""
    return confidences_of(METHODS.get(wildcards.combined).members, wildcards.dataset, wildcards.model)


def fitted_on(wildcards):
    """What a combination is fitted on, its members on the set to calibrate on. A product is not fitted."""
    combination = METHODS.get(wildcards.combined)
    if not combination.fit:
        return {"fit_on": [], "fit_confidences": []}
    dataset = picking.calibration_dataset(CONFIG, wildcards.dataset)
    fit_confidences = confidences_of(combination.members, dataset, wildcards.model)
    return {"fit_on": f"results/{dataset}/prompts/test.jsonl", "fit_confidences": fit_confidences}


def confidences_of(rows, dataset, model):
    return expand("results/{dataset}/{model}/{row}/confidences.jsonl", dataset=dataset, model=model, row=rows)


def trained_on(wildcards):
    """The data set whose confidence LLMs judge this one."""
    return picking.training_dataset(CONFIG, wildcards.dataset)


def hidden_states(dataset, model, probe):
    """The files of hidden states that a probe reads."""
    files = METHODS.get(probe).states
    return expand("results/{dataset}/{model}/states/{file}.jsonl", dataset=dataset, model=model, file=files)


# Targets


def rows_of(table):
    """(dataset, model, method) of each row."""
    spec = CONFIG.tables[table]
    return [(spec.dataset, row.model, row.method) for row in layout.table_rows(spec, METHODS)]


ROWS = list(dict.fromkeys(itertools.chain.from_iterable(map(rows_of, TABLES))))


def metrics_of(*tables):
    """The metrics.json of the rows of some tables, each once, in the order of the tables."""
    paths = [layout.metrics_paths(CONFIG.tables[name], METHODS) for name in tables]
    return list(dict.fromkeys(itertools.chain.from_iterable(paths)))


def ablation_confidences(*tables):
    """The confidences.jsonl of the rows of the ablations among some tables, whose differences are printed."""
    ablations = [name for name in tables if CONFIG.tables[name].kind == "ablation"]
    return [path.replace("metrics.json", "confidences.jsonl") for path in metrics_of(*ablations)]


def made_on_the_way():
    """What the rows of the tables are made from. As inputs of the tables, deleted files are made again."""
    files = set()
    for dataset, model, method in ROWS:
        cell = Cell(dataset, model)
        files |= {*answers_of(cell), cell.confidences(method)}
        for home, name in trained_llms(dataset, model, method):
            files |= {*answers_of(home), f"{home.folder}/{name}/manifest.json"}
            if name == "dpo" or name.startswith("dpo-"):  # and not a user's training, such as dpo2
                reward, _ = reward_and_round(name)
                rounds = [made_in_round(home, reward, number) for number in range(1, CONFIG.dpo.rounds + 1)]
                files |= {*itertools.chain.from_iterable(rounds)}
    return sorted(files)


def answers_of(cell):
    """The answers of a cell, what they were asked, and how often they are right."""
    prompts = prompts_of(cell.dataset, picking.sampled_splits(CONFIG, *cell))
    files = "samples.jsonl", "samples.manifest.json", "surrogate.csv"
    return [*prompts, *(f"{cell.folder}/{file}" for file in files)]


def made_in_round(cell, reward, number):
    """The confidence LLM that a round of DPO starts from, the candidates that it samples, and the pairs among these."""
    folder = round_folder(reward, number)
    candidates = f"{folder}candidates.jsonl", f"{folder}candidates.manifest.json"
    files = f"{round_start(reward, number)}/manifest.json", *candidates, f"{folder}pairs/{reward}.jsonl"
    return [f"{cell.folder}/{file}" for file in files]


def trials(wildcards):
    """The trials of `tune` in the cells in which the paper's reward is trained, for the rows of the tables."""
    if not CONFIG.tune:
        grid = "tune: {beta: [..], learning_rate: [..], epochs: [..], metric: e_aurc}"
        raise BadInput(f"config: no `tune`; give the grid: {grid}")
    cells = set()
    for dataset, model, method in ROWS:
        cells |= {cell for cell, name in trained_llms(dataset, model, method) if name == "dpo"}
    if not cells:
        need = "no row of these tables has the paper's reward; tune chooses its settings: add orce"
        raise BadInput(f"config: paper_tables: {need}")
    for dataset, _ in sorted(cells):
        if "validation" not in CONFIG.datasets[dataset].splits:
            need = "no validation; tune chooses on it: validation: {from: SPLIT, size: N}"
            raise BadInput(f"config: datasets.{dataset}.splits: {need}")
    folders = [cell.folder for cell in sorted(cells)]
    return expand(
        "{folder}/tune/{reward}/{trial}.jsonl", folder=folders, reward=PAPER_REWARD, trial=picking.trials(CONFIG)
    )


PICTURES = stages.pick_settings("figures", CONFIG)


def checked(check, *arguments):
    """Call a check, whose refusal ends the run with one line."""
    try:
        check(*arguments)
    except BadInput as error:
        refuse(error)


def shown(path, caption, category, /, **labels):
    """An output that Snakemake's report shows, with a caption of workflow/report."""
    return report(path, caption=f"../report/{caption}.rst", category=category, labels=labels)
