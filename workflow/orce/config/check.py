"""Checks of a configuration beyond its types, before anything runs: each rule names its key in one
line.

The first problem ends the check, so a rule may rely on the rules before it.
"""

import contextlib
import difflib
import functools
import importlib.util
import re
import shutil
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from msgspec import UNSET, structs

from orce import methods, tasks
from orce.align import rewards
from orce.config import layout, picking
from orce.config.picking import TRAINING_SPLITS
from orce.errors import BadInput, explain
from orce.given.grading import grade_form
from orce.given.records import read_given
from orce.llm import engines
from orce.methods import Registry
from orce.methods.fitted import COMBINATIONS
from orce.runtime.process import say
from orce.settings import load
from orce.settings.schema import (
    Combined,
    Config,
    Count,
    Dataset,
    External,
    FromZero,
    GivenFile,
    Optimisation,
    Table,
)
from orce.tasks import choice, qa
from orce.tasks.examples import SHOWN
from orce.tasks.sources import split_file

PAPER = Path(__file__).with_name("paper.yaml")  # the project's config.yaml, as the wheel carries it
READERS = {"qa": qa, "choice": choice}  # tasks that read any source, by keys of the dataset
OURS = (  # fields of a request that the package sets
    "model", "messages", "stream", "n", "seed", "temperature", "top_p", "max_tokens", "max_completion_tokens", "logprobs"
)  # fmt: skip
# The last word of a key whose value is secret, and the last two words of such keys whose values are
# not.
SECRET = re.compile(
    r"(?:api)?key|token|secrets?|passw(?:or)?d|passphrase|credentials?|auth|authorization|bearer|cookies?|headers?"
)
NO_SECRETS = {
    "cache key", "bos token", "eos token", "stop token", "pad token", "unk token", "mask token", "start token", "end token"
}  # fmt: skip
# names of linear layers: Llama, Qwen, Mistral, Gemma, Phi; Falcon, GPT-NeoX, Bloom; GPT-2; OPT;
# MPT; InternLM
LAYERS = (
    "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "qkv_proj", "gate_up_proj",
    "query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h", "c_attn", "c_proj", "c_fc", "out_proj", "fc1", "fc2",
    "Wqkv", "wqkv", "wo", "w1", "w2", "w3",
)  # fmt: skip
LONGEST_LABEL = 100  # characters
FIRST_READ = 2**24  # bytes up to which a dry run looks into a file of JSON, CSV or TSV
# What the rules write next to a cell's folders: in results/, results/DATASET/ and
# results/DATASET/MODEL/.
RESERVED = {
    "datasets": {"models", "logs", "benchmarks", "metrics.csv", "tuned.yaml"},
    "models": {"prompts", "overlap.json", "overlap.manifest.json"},
    "methods": {"dpo", "pairs", "shards", "states", "tune"},
}


def read_here(more: list[str]) -> Config:
    """The configuration of the run in this folder, with more files on top; the paper's if there is
    no config.yaml.
    """
    base = Path("config.yaml")
    if not base.exists():
        say("no config.yaml in this folder: starting from the paper's configuration")
        base = PAPER
    return read_config([str(base), *more])


def read_config(paths: list[str]) -> Config:
    """The checked configuration of some files, merged as Snakemake does: later ones override keys
    of earlier ones.
    """
    files = load.read_in_order(paths)
    try:
        return check(functools.reduce(load.merge, files))
    except BadInput as error:
        raise BadInput(load.name_file(str(error), paths)) from None


def check(config: dict[str, Any]) -> Config:
    """The configuration, every key checked. Raises BadInput with one line that names the key and
    what would be right.
    """
    checked = load.to_config(config)
    for problem in _problems(checked):
        raise BadInput(f"config: {problem}")
    return checked


def _problems(config: Config) -> Iterator[str]:
    yield from _names(config)
    for name in config.datasets:
        yield from _dataset(name, config)
    for name in config.models:
        yield from _model(name, config)
    yield from _grading(config)
    registry = methods.of(config)
    _import_own_methods(config, registry)
    yield from _methods(config, registry)
    for name, table in config.tables.items():
        yield from _table(f"tables.{name}", table, config, registry)
    yield from _training(config, registry)
    yield from _texts(config, registry)


def _names(config: Config) -> Iterator[str]:
    """What the checks of a part rely on: an engine, GPUs, tables and test splits that there are."""
    for section, reserved in RESERVED.items():
        for name in getattr(config, section).keys() & reserved:
            yield f"{section}.{name}: {name!r} is what a run itself writes under results/; choose another name"
    if config.engine.name not in engines.NAMES:
        yield f"engine.name: no engine {config.engine.name!r}; engines are {', '.join(engines.NAMES)}"
    if config.device == "cuda" and 0 in (config.gpus, config.training.gpus):
        yield "gpus and training.gpus must be at least 1 where device is cuda"
    yield from _twice("paper_tables", config.paper_tables)
    for name in config.paper_tables:
        if name not in config.tables:
            yield f"paper_tables: no table {name!r}; tables are {', '.join(config.tables)}"
    for name, dataset in config.datasets.items():
        if "test" not in dataset.splits:
            yield f"datasets.{name}.splits: no test split; the tables are made from it"


def _twice(key: str, names: list[str]) -> Iterator[str]:
    for name in names:
        if names.count(name) > 1:
            yield f"{key}: names {name!r} twice"


@contextlib.contextmanager
def _at(key: str) -> Iterator[None]:
    """A refusal inside this block names this key."""
    try:
        yield
    except (BadInput, OSError) as error:
        raise BadInput(f"config: {key}: {explain(error)}") from None


def _dataset(name: str, config: Config) -> Iterator[str]:
    key = f"datasets.{name}"
    datasets = config.datasets
    dataset = datasets[name]
    with _at(f"{key}.task"):
        tasks.get(dataset.task)
    yield from _columns(key, dataset)
    source = dataset.confidence_from
    trained = [other for other in datasets if datasets[other].confidence_from is None]
    if source not in (None, *trained):
        yield f"{key}.confidence_from: {source!r} is not a dataset that is trained on; they are {', '.join(trained)}"
    yield from _splits(key, dataset)
    judged_by = picking.training_dataset(config, name)
    yield from _calibration(key, dataset, judged_by, datasets)
    for cut, spec in picking.training_splits(config, name).items():
        split = cut.removeprefix(picking.AFTER)
        if datasets[judged_by].remove_overlap:
            yield f"{key}.splits.test.from: with remove_overlap, {spec.origin!r} cannot also be a training split's"
        if spec.share is None:
            taken = f"datasets.{source}.splits.{split} takes {spec.origin!r} too"
            yield f"{key}.splits.test.from: {taken}; give that a size, so that the two are cut apart"
    if dataset.grading == "grader" and config.grading is None:
        yield f"{key}.grading: needs a grader: grading: {{model: NAME}}, a key of models"
    read = datasets[judged_by].judge_reads
    if dataset.judge_reads != read:
        judges = f"the confidence LLMs of {source}, which judge this dataset"
        yield f"{key}.judge_reads: {dataset.judge_reads}, and {judges}, read {read}; give both the same"


def _columns(key: str, dataset: Dataset) -> Iterator[str]:
    """Checks the keys by which the tasks qa and choice read a source; no other task has them."""
    for name in picking.READING:
        kinds = [kind for kind in READERS if name in ("fields", *READERS[kind].OPTIONS)]
        if getattr(dataset, name) is not UNSET and dataset.task not in kinds:
            readers = f"the tasks {' and '.join(kinds)}" if len(kinds) > 1 else f"task {kinds[0]}"
            yield f"{key}.{name}: a key of {readers}, and not of {dataset.task}"
    given = dataset.fields or {}
    if SHOWN in dataset.splits:
        if dataset.task != "qa":
            yield f"{key}.splits.{SHOWN}: task qa has worked examples of your own, and {dataset.task} has not"
        if dataset.reasoning or "answer" not in given:
            yield f"{key}.splits.{SHOWN}: a worked example is a question with its answer (fields.answer), and no reasoning"
    if dataset.task not in READERS:
        return
    known = READERS[dataset.task].FIELDS
    for name, required in known.items():
        if required and name not in given:
            yield f"{key}.fields.{name}: missing; name the column of the {name}"
    for name in given:
        if name not in known:
            yield f"{key}.fields.{name}: not of task {dataset.task}, whose fields are {', '.join(known)}"
    if dataset.task == "choice":
        yield from _options(key, dataset)
    elif not {"question", "id"} & given.keys():
        yield f"{key}.fields.question: missing; name the column of the question"
    try:
        re.compile(dataset.answer_pattern or "")
    except re.error as error:
        yield f"{key}.answer_pattern: {dataset.answer_pattern!r} is not a regular expression ({error})"
    with _at(f"{key}.equality"):
        qa.require(dataset.equality or "normalised")


def _options(key: str, dataset: Dataset) -> Iterator[str]:
    """The options of task choice, and which of them is the right one."""
    given = dataset.fields or {}
    if ("choices" in given) == (dataset.options is not UNSET):
        columns = "name the column of the options (of BIG-bench: target_scores)"
        yield f"{key}.fields.choices: {columns}, or give the same options to all questions as options"
    if isinstance(given.get("answer"), list):
        yield f"{key}.fields.answer: task choice has one column of the right option"
    options = dataset.options or []
    if options and isinstance(dataset.answer_is, dict):
        for option in dataset.answer_is.values():
            if option not in options:
                yield f"{key}.answer_is: {option!r} is not one of the options {', '.join(options)}"


def _splits(key: str, dataset: Dataset) -> Iterator[str]:
    splits = dataset.splits
    test = splits["test"]
    beside_test = [name for name in splits if name != "test" and splits[name].origin == test.origin]
    if dataset.remove_overlap and beside_test:
        yield f"{key}.remove_overlap: needs a test split from another source split than {beside_test[0]}"
    for split in TRAINING_SPLITS:
        if split not in beside_test:
            continue
        if None in (splits[split].share, test.share):
            only = (
                "a training split may share it only if both have a size, so that they are cut apart"
            )
            yield f"{key}.splits.{split}.from: {test.origin!r} is the test split's source too; {only}"
    for origin in dict.fromkeys(spec.origin for spec in splits.values()):
        sizes = {name: spec.share for name, spec in sorted(splits.items()) if spec.origin == origin}
        unsized = [name for name, size in sizes.items() if size is None]
        if len(unsized) > 1:
            left = f"without a size it takes what is left of {origin!r}, and nothing is left for {unsized[1]}"
            yield f"{key}.splits.{unsized[0]}.size: {left}; give one of them a size"
        shares = [Fraction(size) for size in sizes.values() if isinstance(size, str)]
        if sum(shares) > 1 or (sum(shares) == 1 and len(shares) < len(sizes)):
            yield f"{key}.splits: the shares of {origin!r} come to {sum(shares)}, and nothing is left for more"


def _calibration(
    key: str, dataset: Dataset, judged_by: str, datasets: dict[str, Dataset]
) -> Iterator[str]:
    name = dataset.calibrate_on
    if name is None:
        return
    fit = datasets.get(name)
    if fit is None or fit.confidence_from != judged_by:
        yield f"{key}.calibrate_on: {name!r} is not a dataset with confidence_from: {judged_by}; add one of other questions"
    elif _test_questions(fit) == _test_questions(dataset):
        yield f"{key}.calibrate_on: {name!r} has the test questions of this dataset; name another split of the source"


def _test_questions(dataset: Dataset) -> tuple[Any, ...]:
    """What is equal for datasets with the same test questions."""
    return dataset.task, dataset.source, dataset.splits["test"].origin


def _model(name: str, config: Config) -> Iterator[str]:
    key = f"models.{name}"
    models = config.models
    model = models[name]
    served = picking.on_server(config, name)
    with_weights = [owner for owner in models if models[owner].source.keys() - {"model", "server"}]
    listed = f"is not a model with weights of its own; they are {', '.join(with_weights)}"
    request = (model.api.request or {}) if model.api else {}
    for field in OURS:
        if field in request:
            yield f"{key}.api.request.{field}: the package sets this field of a request itself"
    remedy = f"put it into an environment variable, and name that one as {key}.api.key"
    for field in _secret_keys({"api.request": request, "template_kwargs": model.template_kwargs}):
        yield f"{key}.{field}: may be a secret, and would stand in every seal; {remedy}"
    if model.api is not None and not served:
        yield f"{key}.api: says how a server is asked, and this model has none; name it as source: {{server, model}}"
    shared = None if served else model.source.get("model")
    if shared not in (None, *with_weights):
        yield f"{key}.source.model: {shared!r} {listed}"
    if served and model.confidence is None and model.trains:
        judge = "name the model to train as confidence LLM, which also states the confidences of Vanilla"
        yield f"{key}.confidence: a model on a server cannot be trained; {judge}"
    if model.confidence not in (None, name, *with_weights):
        yield f"{key}.confidence: {model.confidence!r} {listed}"


def _secret_keys(values: Any, above: str = "") -> Iterator[str]:
    """The dotted keys in a mapping whose names say that their values are secret: api_key,
    X-Api-Key, accessToken, headers.
    """
    if isinstance(values, list):
        values = dict(enumerate(values))
    if not isinstance(values, dict):
        return
    for name, value in values.items():
        separated = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(name))  # access_Token
        words = re.findall(r"[a-z]+", separated.lower())
        if words and SECRET.fullmatch(words[-1]) and " ".join(words[-2:]) not in NO_SECRETS:
            yield f"{above}{name}"
        yield from _secret_keys(value, f"{above}{name}.")


def _grading(config: Config) -> Iterator[str]:
    spec = config.grading
    if spec is None:
        return
    usable = [name for name, model in config.models.items() if model.source]
    if spec.model not in usable and not (spec.model is None and spec.group == "nli"):
        yield f"grading.model: {spec.model!r} is not a model with weights or a server; they are {', '.join(usable)}"
    if (spec.group == "nli") != (spec.nli is not None):
        yield "grading.nli: goes with group: nli; give both, nli as {hub: ID} or {path: FOLDER}"
    if not spec.grades and spec.group == "none":
        yield "grading.grades: false leaves nothing to ask without a group; give group: grader or nli"


def _import_own_methods(config: Config, registry: Registry) -> None:
    """Imports the modules that `methods` names: the checks after this one ask what these have."""
    for name, given in config.methods.items():
        key = f"methods.{name}" if isinstance(given, str) else f"methods.{name}.module"
        if "module" in registry.given[name]:
            load.convert(registry.module(name), str, key)
            with _at(key):
                registry.get(name)


def _methods(config: Config, registry: Registry) -> Iterator[str]:
    for name, given in registry.given.items():
        for form, kind in {"of": Combined, "path": External}.items():
            if form in given:
                load.convert(given, kind, f"methods.{name}")
                if name in methods.known():
                    yield f"methods.{name}: {name!r} is a method of this package; choose another name"
    for name, given in registry.given.items():  # a combination looks at other rows
        if "of" in given:
            yield from _combination(name, given, registry)
        elif "path" not in given:
            _check_settings(name, given, registry)
    for name in registry.names("prompted"):
        if "max_tokens" not in registry.settings(name):
            yield f"methods.{name}.max_tokens: missing; say how many tokens the text of a prompted method may take"
    for name, path in config.rewards.items():
        if name in rewards.LABELS:
            yield f"rewards.{name}: {name!r} is a reward of this package; choose another name"
        with _at(f"rewards.{name}"):
            rewards.from_path(path)


def _combination(name: str, given: dict[str, Any], registry: Registry) -> Iterator[str]:
    if given["fit"] not in COMBINATIONS:
        yield f"methods.{name}.fit: {given['fit']!r}; expected {', '.join(COMBINATIONS)}"
    key = f"methods.{name}.of"
    if len({*given["of"]}) < len(given["of"]):
        yield f"{key}: names a row twice"
    with _at(key):
        judged = registry.answers_scored(name)
    if len(judged) > 1:
        others = ", ".join(sorted(judged - {"greedy"}))
        yield f"{key}: {others} judges answers of its own; combine rows that judge the same answers"
    yield from _fitted_twice(key, name, registry)


def _fitted_twice(key: str, row: str, registry: Registry) -> Iterator[str]:
    """A row fitted on the calibration set has only in-sample confidences there, unfit for another
    fit.
    """
    if registry.own_fit(row):
        for below in registry.fitted(row)[1:]:
            yield f"{key}: {below} is fitted on the questions that {row} would be fitted on; name a row that fits nothing"


def _check_settings(name: str, given: dict[str, Any], registry: Registry) -> None:
    """Checks a method's settings: only keys of its SETTINGS, each with its default's type, and
    those of a training.
    """
    method = registry.get(name)  # BadInput for an unknown method or a broken file
    known = {key: _type_of_setting(default) for key, default in method.settings.items()}
    if method.train:
        known |= {field.name: field.type for field in structs.fields(Optimisation)}
    for key, value in given.items():
        if key not in (*known, "module"):
            raise load.unknown_key(f"methods.{name}", key, [*known])
        load.convert(value, known.get(key, str), f"methods.{name}.{key}")


def _type_of_setting(default: Any) -> Any:
    if isinstance(default, bool) or not isinstance(default, int | float):
        return type(default)
    return Count if isinstance(default, int) and default else FromZero


def _table(key: str, table: Table, config: Config, registry: Registry) -> Iterator[str]:
    if table.dataset not in config.datasets:
        yield f"{key}.dataset: no dataset {table.dataset!r}; datasets are {', '.join(config.datasets)}"
    for model in [*table.models, table.source or table.models[0]]:
        if model not in config.models:
            yield f"{key}: no model {model!r}; models are {', '.join(config.models)}"
    yield from _twice(f"{key}.models", table.models)
    rows = [*(table.methods or ())]
    yield from _twice(f"{key}.methods", rows)
    if table.kind == "transfer" and not table.source:
        yield f"{key}.source: name the model whose confidence LLMs are transferred"
    for row in rows:
        with _at(f"{key}.methods"):
            registry.weights(row)
        for leaf in registry.leaves(row):
            source = registry.parse(leaf).source
            if source not in (None, *config.models):
                yield f"{key}.methods: {leaf}: no model {source!r}; models are {', '.join(config.models)}"
        yield from _fitted_twice(f"{key}.methods", row, registry)
        if table.kind == "transfer":
            yield from _transferred(f"{key}.methods", row, table, registry)
    yield from _fits(key, table, config, registry)
    for model in table.models:
        yield from _cell(key, table, model, config, registry)


def _transferred(key: str, row: str, table: Table, registry: Registry) -> Iterator[str]:
    """In a transfer, rows have no source of their own, and the members of a combination have to be
    transferred too.
    """
    name = registry.parse(row)
    if name.source:
        alone = row.replace(f"-from-{name.source}", "")
        yield f"{key}: {row}: a transfer adds its source to the rows; write {alone}"
    method = name.method
    if not registry.get(method).members:
        return
    for leaf in registry.with_weights([row]):
        if registry.parse(leaf).source is None:
            remedy = f"name {leaf}-from-{table.source} in methods.{method}.of"
            yield f"{key}: {row} is combined from {leaf} of the table's own models; {remedy}"


def _fits(key: str, table: Table, config: Config, registry: Registry) -> Iterator[str]:
    """The data that a table's methods are trained and fitted on."""
    rows = layout.row_labels(table, registry)
    models = config.models
    with_weights = registry.with_weights(rows)
    probed = [leaf for leaf in registry.bottom(rows) if registry.find(leaf).states]
    judged_by = picking.training_dataset(config, table.dataset)
    missing = [split for split in TRAINING_SPLITS if split not in config.datasets[judged_by].splits]
    trained = [*with_weights, *probed]
    if missing and trained:
        lacks = f"{trained[0]} is trained, and datasets.{judged_by}.splits has no {' and no '.join(missing)}"
        yield f"{key}: {lacks}; give both, or confidence_from, or list only methods without training under methods"
    for model in [table.source or ""] if table.kind == "transfer" else table.models:
        if not models[model].trains and with_weights:
            yield f"{key}: model {model!r} has trains: false, and this table needs its confidence LLMs; name another"
    if config.datasets[table.dataset].calibrate_on is None:
        for row in rows:
            for method in registry.fitted(row):
                how = registry.own_fit(method)
                yield f"{key}: {method} needs datasets.{table.dataset}.calibrate_on, the dataset to fit {how} on"
    for model in table.models:
        if not models[model].trains and probed:
            yield f"{key}: {probed[0]} is fitted on training questions, and model {model!r} has trains: false"


def _cell(key: str, table: Table, model: str, config: Config, registry: Registry) -> Iterator[str]:
    """What the methods of a table need of a model and of the data's columns."""
    spec = config.models[model]
    dataset = config.datasets[table.dataset]
    served = picking.on_server(config, model)
    columns = f"datasets.{table.dataset}.fields"
    unnamed = {"question", "answer"} - {*(dataset.fields or {})} if dataset.task == "qa" else set()
    if picking.given_answers(config, table.dataset, model) is None:
        if not spec.source:
            yield f"models.{model}.source: names no weights and no server; name them, or its answers as models.{model}.answers"
        if "answer" in unnamed:
            yield f"{columns}.answer: missing; name the column of the answer, or give {model!r} judged answers"
    for row in registry.bottom(layout.row_labels(table, registry)):
        at = f"{key}.methods: {row}"
        name = registry.parse(row).method
        method = registry.get(name)
        asks = method.kind == "prompted"
        judges = method.kind == "stated"
        reads = bool(method.likelihoods) or "answers" in method.states
        if not spec.source and (asks or reads):
            yield f"{at} needs the answer LLM, and of models.{model} only its answers are known (source: {{}})"
        if judges and spec.confidence is None and (not spec.source or served):
            yield f"{at} needs a confidence LLM: name a model with weights as models.{model}.confidence"
        if served and reads:
            needs = f"{key}: {name} needs the weights of the answer LLM, and model {model!r} is on a server"
            if not method.likelihoods or not method.logprobs_suffice:
                yield needs
            elif not picking.gives_logprobs(config, model):
                yield f"{needs}; or ask that for log-probabilities: models.{model}.api.logprobs: true"
        if method.prompt is not None and "answer" in unnamed:
            yield f"{at} gives answers of its own; to judge them, name {columns}.answer"
        if (asks or judges or reads) and "question" in unnamed:
            yield f"{at} reads the question; name its column, {columns}.question"


def _training(config: Config, registry: Registry) -> Iterator[str]:
    training = config.training
    if config.dtype == "float16":
        for name in config.paper_tables:
            for row in registry.with_weights(layout.row_labels(config.tables[name], registry)):
                remedy = (
                    "take bfloat16 or float32, or list only methods without training under methods"
                )
                yield f"dtype: {row} of the table {name!r} is trained, and in float16 small gradients vanish; {remedy}"
    sizes = {"sft": config.sft.batch_size, "dpo": config.dpo.batch_size}
    for name in registry.trained():
        sizes[f"methods.{name}"] = picking.training_options(config, name)["batch_size"]
    for key, size in sizes.items():
        if size % max(1, training.gpus):
            yield f"{key}.batch_size: {size} is not a multiple of training.gpus, {training.gpus}"
    if training.kernels is not UNSET and config.device == "cpu":
        yield "training.kernels: liger's kernels run on a GPU; set device: cuda, or leave the key out"
    if training.trainer and (training.grouped or training.kernels):
        yield "training.trainer: TRL's trainers know neither grouped nor kernels; leave these out, or it"
    for target in training.lora.target_modules if training.method == "lora" else ():
        name = target.rpartition(".")[2]
        close = difflib.get_close_matches(name, LAYERS, 1, 0.9)
        if close and name not in LAYERS:
            yield f"training.lora.target_modules: {target!r} is not a layer of a common model; did you mean {close[0]!r}?"


def _texts(config: Config, registry: Registry) -> Iterator[str]:
    for name, model in config.models.items():
        yield from _label(f"models.{name}.label", model.label)
    for name, table in config.tables.items():
        caption = " ".join((table.caption or "-").split())
        yield from _label(f"tables.{name}.caption", caption, 10 * LONGEST_LABEL)
        if isinstance(table.methods, dict):
            for row, label in table.methods.items():
                yield from _label(f"tables.{name}.methods.{row}", label)
    for name in registry.names():
        yield from _label(f"{name}: LABEL of its module", registry.get(name).label)
    for name, module in registry.rewards.items():
        yield from _label(f"orce-{name}: LABEL of its module", rewards.row_label(module))


def _label(key: str, text: str, longest: int = LONGEST_LABEL) -> Iterator[str]:
    """One line of printable characters, as it is printed in LaTeX, HTML, RST, pictures and a
    terminal.
    """
    text = str(text)  # LABEL of a user's module may be anything
    for character in text:
        if not character.isprintable():
            yield f"{key}: U+{ord(character):04X} in {text!r} cannot be printed; a label is one line of printable characters"
    if not text.strip() or len(text) > longest:
        yield f"{key}: {len(text)} characters; a label has 1 to {LONGEST_LABEL}, a caption ten times as many"


def data(config: Config) -> None:
    """Raises BadInput naming the first local file or program that is missing or does not fit the
    settings.
    """
    for name, dataset in config.datasets.items():
        files = dataset.source.get("path")
        _require_file(f"datasets.{name}.source.path", files, "the folder or file of the data")
        _refuse_shared_rows(f"datasets.{name}.splits", dataset)
    for name, model in config.models.items():
        weights = model.source.get("path")
        _require_file(
            f"models.{name}.source.path", weights, "the folder of the weights", Path.is_dir
        )
    if config.python is not None:
        # the jobs' commands begin with `python`, which is looked for in this folder
        if not config.python.endswith("/python"):
            raise BadInput(
                f"config: python: {config.python}; expected FOLDER/python, as a virtual environment has it"
            )
        if shutil.which(config.python) is None:
            raise BadInput(
                f"config: python: {config.python} is not a program here; expected a Python interpreter"
            )
    spec = config.grading
    if spec is not None:
        _require_file("grading.prompt", spec.prompt, "a template", Path.is_file)
        weights = (spec.nli or {}).get("path")
        _require_file("grading.nli.path", weights, "the folder of the NLI model", Path.is_dir)
        with _at("grading.prompt"):
            grade_form(spec.prompt)
    for key, given, _ in _given_files(config):
        _require_file(f"{key}.path", given.path, "JSON lines, CSV or Parquet", Path.is_file)
    packages: dict[str, str] = dict.fromkeys(config.training.report_to, "report_to")
    if config.training.kernels is not UNSET:
        packages["liger-kernel"] = "kernels"
    for name, key in packages.items():
        if importlib.util.find_spec(name.replace("-", "_")) is None:
            raise BadInput(f"config: training.{key}: {name} is not installed; pip install {name}")


def path_with(folder: str | Path) -> str:
    """The folder as an entry of PATH or PYTHONPATH. Raises BadInput if it cannot stand there."""
    name = str(folder)
    # Snakemake's log would print half a page for each name that is not UTF-8.
    if any(sign in name for sign in ":\n\r") or name.encode(errors="replace").decode() != name:
        signs = "a colon, a line break or what is not UTF-8"
        raise BadInput(
            f"{name!r}: {signs} cannot stand in the name of a folder in PATH; move it to another folder"
        )
    return name


def _given_files(config: Config) -> Iterator[tuple[str, GivenFile, tuple[str, ...]]]:
    """(key, file, keys that each record needs) of the given answers and confidences of the paper's tables."""
    registry = methods.of(config)
    for name in config.paper_tables:
        table = config.tables[name]
        rows = registry.bottom(layout.row_labels(table, registry))
        external = [row for row in rows if registry.find(row).kind == "external"]
        for model in table.models:
            answers = picking.given_answers(config, table.dataset, model)
            if answers is not None:
                yield f"models.{model}.answers", answers, ()
            for row in external:
                given = picking.given_confidences(config, table.dataset, model, row)
                yield f"methods.{row}", given, ("confidence",)


def _require_file(
    key: str, path: str | None, what: str, is_right: Callable[[Path], bool] = Path.exists
) -> None:
    if path is None or is_right(Path(path)):
        return
    found = "does not exist"
    if Path(path).exists():
        found = "is a folder" if Path(path).is_dir() else "is a file"
    raise BadInput(f"config: {key}: {path} {found}; expected {what}, from {Path.cwd()}")


def _refuse_shared_rows(key: str, dataset: Dataset) -> None:
    """Raises BadInput for splits with different names in one file: they would share its rows."""
    path = dataset.source.get("path")
    names = sorted({spec.origin for spec in dataset.splits.values()})
    if dataset.task not in READERS or path is None or not Path(path).is_file() or len(names) < 2:
        return
    same = f"from: {' and from: '.join(names)} are the same rows, and training questions would be in the test set"
    remedy = (
        "give all splits the same from, which cuts them apart, or a folder with a file for each"
    )
    raise BadInput(f"config: {key}: {path} is one file, so {same}; {remedy}")


def rows(config: Config) -> None:
    """Raises BadInput naming the first dataset whose local files begin with rows that its `fields`
    misread, or the first given answers or confidences that begin with such rows.
    """
    for name, dataset in config.datasets.items():
        if dataset.task not in READERS or "path" not in dataset.source:
            continue
        for split in {spec.origin for spec in dataset.splits.values()}:
            source = picking.data_source(config, name)
            with _at(f"datasets.{name}"):
                if _quickly_read(split_file(source, split)):
                    READERS[dataset.task].load(source, split, first=3)
    for key, given, needed in _given_files(config):
        if _quickly_read(Path(given.path)):
            with _at(key):
                read_given(given, *needed, first=3)


def _quickly_read(path: Path) -> bool:
    """Whether the first rows of a file are read in no time: JSON, CSV and TSV files are read as a whole."""
    return path.suffix in (".jsonl", ".parquet") or path.stat().st_size <= FIRST_READ
