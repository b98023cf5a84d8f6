"""No label inside a confidence: whatever the references are, and without any, a row says the same of the same answers.

Each row is computed with the references as they are, exchanged between the questions, replaced by what the samples say, and left
out, and with opposite judgements. Answers and references are such that a look at a reference would show: several samples contain
it in other words, names are aliases of each other, and some answers cannot be read.
"""

import itertools
import json
import random
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dry_run
import pytest
from conftest import ARITHMETIC, ROOT, WORLDFACTS, cases, own_config, prompts_words
from finished_run import CELL
from test_apis import FULL, Api, choice

import orce
from orce import methods, tasks
from orce.__main__ import main
from orce.artefacts import files
from orce.config import cells

N, K = 6, 4  # questions, and samples of each beside the greedy answer
LOOKING = "looking/task.py"
Label = dict[str, Any]  # the keys of a question that say which answers are right
Ways = dict[str, list[Label]]  # of each way of labelling, the label of every question
Said = dict[str, list[tuple]]  # of each row, (answer, confidence) of every question


@pytest.fixture(autouse=True)
def looking(tmp_path, monkeypatch):
    """An empty folder with a task and methods of a user's that look at every label they can find."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "tests/data/looking", "looking")


# The rows


KNOWN = methods.known()
OWN = ["looking/watching.py", "looking/choosing.py"]
OF_SAMPLES = [*sorted(name for name, method in KNOWN.items() if method.compares), *OWN, "both"]
OF_A_SERVER = ["likelihood", "sequence_probability", "min_likelihood", "topk", "cot", "linguistic", "looking/asking.py"]
OF_WEIGHTS = ["p_true", "weighted_semantic_entropy", "vanilla"]
CALIBRATED = ["agreement+platt", "agreement+isotonic", "agreement+temperature", "mixed"]
PROBES = sorted(name for name, method in KNOWN.items() if method.states)
SETTINGS = {
    "both": {"of": ["agreement", "semantic_entropy"], "fit": "product", "label": "Both"},
    "mixed": {"of": ["agreement", "num_sets"], "fit": "logistic", "label": "Mixed"},
    "topk": {"k": 2, "max_tokens": 6},
    "cot": {"max_tokens": 6},
    "linguistic": {"max_tokens": 4},
    "vanilla": {"constrained": True},
}


def test_no_row_is_left_out_here():
    trained = {name for name, method in KNOWN.items() if method.kind == "stated" and name != "vanilla"}
    tried = {*OF_SAMPLES, *OF_A_SERVER, *OF_WEIGHTS, *PROBES, *(row.rpartition("+")[2] for row in CALIBRATED)}
    assert {*KNOWN} - trained - tried == set()


def settings(rows: list[str]) -> dict[str, dict]:
    return {name: SETTINGS[name] for name in rows if name in SETTINGS}


# Questions, their answers and labels


@dataclass(frozen=True)
class Kind:
    """A task with an equality. texts: what answers say; references: of its questions in turn; more: further keys of a question."""

    task: str
    texts: list[str]
    references: list[list]
    more: dict[str, Any] = field(default_factory=dict)

    def question(self, i: int) -> dict[str, Any]:
        return {"id": f"q{i}", "question": f"What is it, of {i}?", **self.more}

    def answers(self, i: int) -> list[str]:
        """The greedy answer and K samples, the same in every call."""
        return random.Random(i).choices(self.texts, k=K + 1)

    def replaced(self, i: int) -> list:
        """Another right answer: what two of the samples say, or another number, option or list of spans."""
        if self.task == "choice":
            return ["Cusco"] if self.references[i % len(self.references)] == ["Lima"] else ["Lima"]
        if self.task == "drop":
            return [["Ann, Bob"], ["Bob"]]
        if self.more.get("equality") in ("numeric", "math-verify"):
            return ["7"]
        said = [text for text in dict.fromkeys(self.answers(i)[1:]) if text.strip(" ?!")]
        return said[:2] or ["Cusco"]

    def label(self, reference: list) -> Label:
        return {"reference": reference[0] if self.task == "choice" else reference}


OWN_TASKS = {"arithmetic": ARITHMETIC, "worldfacts": WORLDFACTS, "looking": LOOKING}


def kind_of(name: str, task: str, **more) -> Kind:
    return Kind(OWN_TASKS.get(task, task), **more)


KINDS = {case["name"]: kind_of(**case) for case in cases("labelled_kinds")}
REFERENCES = ("as they are", "shuffled", "replaced")
ABSENT = "absent"
JUDGEMENTS = ("judged", "judged otherwise")


def labellings(kind: Kind) -> Ways:
    """Every way of saying which answers are right: for each question the keys that say it."""
    references = [kind.references[i % len(kind.references)] for i in range(N)]
    replaced = [kind.replaced(i) for i in range(N)]
    right = [[text in kind.texts[:3] for text in kind.answers(i)] for i in range(N)]
    wrong = [[not each for each in marks] for marks in right]
    ways: Ways = {ABSENT: [{}] * N}
    for way, named in zip(REFERENCES, (references, references[1:] + references[:1], replaced), strict=True):
        ways[way] = [kind.label(reference) for reference in named]
    for way, marks in zip(JUDGEMENTS, (right, wrong), strict=True):
        ways[way] = [{"correct": each} for each in marks]
    return ways


def records(kind: Kind, labels: list[Label], given: bool = True) -> list[dict]:
    """What a user's file has: questions with their labels, and answers already made where they are given."""
    made = []
    for i, label in enumerate(labels):
        answers = {"answers": kind.answers(i)} if given else {}
        made.append(kind.question(i) | answers | label)
    return made


# The doors


@dataclass(frozen=True)
class Model:
    """What a door is told of a model. place: its folder or address; options: further ones; given: whether its answers are given."""

    place: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    given: bool = True

    def source(self) -> dict[str, str]:
        if self.place is None:
            return {}
        return {"server": self.place, "model": "m"} if "://" in self.place else {"path": self.place}


NONE = Model()


def by_python(kind: Kind, labels: list[Label], rows: list[str], model: Model = NONE) -> Said:
    asked = records(kind, labels, model.given)
    options: Any = {"task": kind.task, "settings": settings(rows), **model.options}
    table = orce.confidence(model.place, asked, [row for row in rows if row != "judge"], **options)
    return of_table(table.records, rows)


def by_measure(kind: Kind, labels: list[Label], rows: list[str], model: Model = NONE) -> Said:
    files.write_jsonl("q.jsonl", records(kind, labels, model.given))
    words = ["measure", "q.jsonl", "--model", model.place or "", "--methods", ",".join(rows)]
    words += ["--task", kind.task, "--settings", json.dumps(settings(rows))]
    for key, value in model.options.items():
        words += [f"--{key.replace('_', '-')}", str(value)]
    assert main([*words, "--out", "o.jsonl", "--folder", new_folder()]) == 0
    return of_table(files.read_jsonl("o.jsonl"), rows)


def of_table(lines: list[dict], rows: list[str]) -> Said:
    said: Said = {}
    for row in rows:
        name = Path(row).stem
        judged = [line.get("own", {}).get(name, line) for line in lines]
        said[row] = [(one["answer"], line["confidence"][name]) for one, line in zip(judged, lines, strict=True)]
    return said


def by_configuration(kind: Kind, ways: Ways, rows: list[str], model: Model = NONE) -> dict[str, Said]:
    """The rows of one run of the workflow, which has a data set and a model for each way of labelling."""
    root = Path(new_folder()).absolute()
    root.mkdir()
    (root / "looking").symlink_to(Path("looking").absolute())
    own = {Path(row).stem: {"module": row} for row in rows if row.endswith(".py")}
    datasets, models, tables = {}, {}, {}
    for way, labels in ways.items():
        name = way.replace(" ", "-")
        place = root / name
        place.mkdir()
        spec: dict[str, Any] = {"label": name, "source": model.source(), "trains": False}
        if model.given:
            files.write_jsonl(place / "answers.jsonl", records(kind, labels))
            spec["answers"] = {"path": str(place / "answers.jsonl")}
        elif "server" in spec["source"]:
            spec["api"] = {"logprobs": True}
        models[name] = spec
        datasets[name] = {"splits": {"test": {"from": "test"}}} | dataset(kind, labels, place)
        methods_shown = [Path(row).stem for row in rows]
        tables[name] = {"kind": "main", "dataset": name, "models": [name], "methods": methods_shown}
    first, *_ = datasets
    asking = {"samples": K, "max_tokens": 6, "chunk": 32}
    config = own_config(first, datasets[first], models, [], methods=settings(rows) | own, answers=asking)
    config |= {"datasets": datasets, "tables": tables, "paper_tables": [*tables]}
    made = {
        (way, row): cells.Cell(name, name).confidences(Path(row).stem)
        for way, name in zip(ways, datasets, strict=True)
        for row in rows
    }
    dry_run.make(root, config, *made.values())
    said: dict[str, Said] = {way: {} for way in ways}
    for (way, row), path in made.items():
        said[way][row] = [(line["answer"], line["confidence"]) for line in files.read_jsonl(root / path)]
    return said


numbers = itertools.count()


def new_folder() -> str:
    return f"run{next(numbers)}"


# One of the demo's tasks with examples from a file, since its own have the labels that they have.
FROM_A_FILE = """
import json
from pathlib import Path

exec(open({path!r}).read())


def load(source, split, seed=0):
    return [json.loads(line) for line in Path(source["path"]).read_text().splitlines()]
"""


def dataset(kind: Kind, labels: list[Label], root: Path) -> dict:
    """The data set of a configuration, with its file as its task reads it."""
    lines = [kind.question(i) | label for i, label in enumerate(labels)]
    if kind.task == "drop":
        return of_drop(kind, lines, root)
    data, spec, task = root / "data.jsonl", {}, kind.task
    if task in ("qa", "choice"):
        columns = {"id": "id", "question": "question", "choices": "choices", "answer": "reference"}
        spec = {"fields": {name: column for name, column in columns.items() if column in lines[0]}}
        spec |= {key: value for key, value in kind.more.items() if key == "equality"}
    else:
        whole = {"context": None, "choices": None, "reference": []}
        lines = [whole | line | {"accepted": line.get("reference", [])} for line in lines]
    if task == ARITHMETIC:
        lines = [line | {"reference": "".join(line["reference"][:1])} for line in lines]
    if task in (ARITHMETIC, WORLDFACTS):
        (root / "my_task.py").write_text(FROM_A_FILE.format(path=task))
        task = str(root / "my_task.py")
    files.write_jsonl(data, lines)
    return {"task": task, "source": {"path": str(data)}} | spec


def of_drop(kind: Kind, lines: list[dict], root: Path) -> dict:
    """DROP's file as it is published."""
    asked = []
    for line in lines:
        first, *others = [{"number": "", "date": {}, "spans": spans} for spans in line["reference"]]
        answers = {"answer": first, "validated_answers": others}
        asked.append({"query_id": line["id"], "question": line["question"]} | answers)
    passage = {"passage": kind.more["context"], "qa_pairs": asked}
    files.write_json(root / "drop_dataset_dev.json", {"p": passage})
    return {"task": "drop", "source": {"path": str(root)}, "splits": {"test": {"from": "validation"}}}


def one_by_one(door: Callable[..., Said]) -> Callable[..., dict[str, Said]]:
    """A door that is told of one way of labelling, called for each."""

    def said(kind: Kind, ways: Ways, rows: list[str], **options) -> dict[str, Said]:
        return {way: door(kind, labels, rows, **options) for way, labels in ways.items()}

    return said


DOORS: dict[str, Callable[..., dict[str, Said]]] = {
    "python": one_by_one(by_python),
    "measure": one_by_one(by_measure),
    "configuration": by_configuration,
}


def ways_at(door: str, name: str) -> Ways:
    """The ways in which a door can be told which answers are right."""
    left_out: tuple[str, ...] = ()
    if door == "configuration":  # whose data sets have references, or whose answers have judgements
        left_out = (ABSENT, *JUDGEMENTS) if name in ("choice", "drop") else (ABSENT,)
    elif name == "arithmetic":  # whose reference is a text; the reference of a record is a list
        left_out = REFERENCES
    return {way: labels for way, labels in labellings(KINDS[name]).items() if way not in left_out}


# The promise


def changed(door: str, name: str, rows: list[str], model: Model = NONE, judged=True) -> list:
    """(row, way of labelling) wherever a row does not say what it says in the first way that a door has for a kind."""
    ways = ways_at(door, name)
    if not judged:
        ways = {way: labels for way, labels in ways.items() if way not in JUDGEMENTS}
    usual, *others = DOORS[door](KINDS[name], ways, rows, model=model).items()
    return [(row, way) for way, said in others for row in said if said[row] != usual[1][row]]


def quick(names: Iterable[str], *first: str) -> list:
    """The names as parameters, of which `make check` takes the first."""
    return [pytest.param(name, marks=[] if name in first else pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", quick(KINDS, "contains", "numeric", "worldfacts", "a user's"))
@pytest.mark.parametrize("door", quick(DOORS, "python"))
def test_given_answers_have_the_same_confidences(door, name):
    assert changed(door, name, OF_SAMPLES) == []


def server(kind: Kind) -> Api:
    """Replies with the kind's texts, drawn by the whole of what is asked: a label in a prompt would be another reply."""

    def reply(body: dict, headers) -> tuple[int, dict]:
        asked = str((body["messages"], body.get("temperature")))
        choices = []
        for i in range(body.get("n", 1)):
            drawn = random.Random(f"{asked} {i}")
            text = in_form(asked, drawn.choice(kind.texts), drawn)
            token = {"token": text, "logprob": -drawn.random()}
            choices.append(choice(text, i) | {"logprobs": {"content": [token]}})
        return 200, {"choices": choices, "usage": FULL}

    return Api(reply)


def in_form(asked: str, text: str, drawn: random.Random) -> str:
    """An answer in the form that a prompt asks for."""
    if "G1" in asked:
        return f"G1: {text}\nP1: {drawn.randrange(101)}%\nG2: Oslo\nP2: 1%"
    if "Explanation" in asked:
        return f"Explanation: so\nAnswer: {text}\nConfidence: {drawn.randrange(101)}%"
    if "Highly likely" in asked:
        return drawn.choice(["Likely", "Unlikely", "Almost certain"])
    return drawn.choice(["yes", "no"]) if "mean the same" in asked else text


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("door", ["python", "configuration"])
def test_answers_that_are_sampled_have_the_same_confidences(door, name, direct):
    with server(KINDS[name]) as api:
        sampling = {} if door == "configuration" else {"samples": K, "max_tokens": 6}
        model = Model(api.address, {"server_model": "m"} | sampling, given=False)
        assert changed(door, name, [*OF_SAMPLES, *OF_A_SERVER], model, judged=False) == []


@pytest.fixture(scope="module")
def weights(small, tmp_path_factory) -> str:
    """Folder of the small model, made to read longer prompts."""
    place = shutil.copytree(small, tmp_path_factory.mktemp("weights") / "model")
    config = files.read_json(place / "config.json")
    files.write_json(place / "config.json", config | {"max_position_embeddings": 4096})
    return str(place)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("door", ["python", "configuration"])
def test_what_weights_say_of_given_answers_is_the_same(door, name, weights):
    model = Model(weights, {} if door == "configuration" else {"device": "cpu"})
    assert changed(door, name, OF_WEIGHTS, model) == []


OF_EVERY_TASK = ["contains", "choice", "drop", "a user's"]


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_EVERY_TASK)
def test_a_trained_judge_states_the_same(name, finished):
    model = Model(options={"judge": str(finished / CELL / "sft"), "device": "cpu"})
    assert changed("python", name, ["judge"], model) == []


@pytest.mark.parametrize("name", quick(KINDS, "contains"))
def test_samples_that_a_model_groups_have_the_same_confidences(name, direct):
    with server(KINDS[name]) as api:
        model = Model(options={"group_by": api.address, "server_model": "m"})
        assert changed("python", name, OF_SAMPLES, model) == []


def known(kind: Kind) -> list[dict]:
    """Questions to fit on, with judgements of their answers."""
    asked = []
    for i in range(N, 5 * N):
        answers = kind.answers(i)
        judged = {"answers": answers, "correct": [text in kind.texts[:3] for text in answers]}
        asked.append(kind.question(i) | judged)
    return asked


@pytest.mark.parametrize("name", quick(KINDS, "contains"))
def test_what_is_fitted_on_other_questions_does_not_depend_on_the_labels_of_the_test(name):
    model = Model(options={"fit": known(KINDS[name])})
    assert changed("python", name, CALIBRATED, model) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_EVERY_TASK)
def test_probes_do_not_depend_on_the_labels_of_the_test(name, weights):
    model = Model(weights, {"fit": known(KINDS[name]), "device": "cpu"})
    assert changed("python", name, PROBES, model) == []


# What follows from it


def test_a_users_key_that_asks_for_the_reference_is_named_in_one_line(capsys):
    wanting = Path(LOOKING).read_text().replace('example.get("accepted", [])', 'example["reference"]')
    Path(LOOKING).write_text(wanting)
    files.write_jsonl("q.jsonl", records(KINDS["a user's"], labellings(KINDS["a user's"])["as they are"]))
    words = ["measure", "q.jsonl", "--model", "", "--methods", "agreement", "--task", LOOKING]
    assert main([*words, "--out", "o.jsonl"]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if LOOKING in line]
    assert f"{LOOKING} key(), line 35: raised KeyError: 'reference' for question 'q" in line


def test_a_users_key_does_not_see_a_label_under_a_key_of_its_own():
    """Three answers differ as texts; with the accepted name seen, two of them would be one."""
    asked = {"id": "q", "question": "Where?", "reference": "Lima", "answers": ["It is Lima", "Lima!", "Quito"]}
    for accepted in ([], ["Lima"]):
        files.write_jsonl("q.jsonl", [asked | {"accepted": accepted}])
        words = ["measure", "q.jsonl", "--methods", "agreement", "--task", LOOKING, "--out", "o.jsonl"]
        assert main(words) == 0
        assert files.read_jsonl("o.jsonl")[0]["confidence"] == {"agreement": pytest.approx(1 / 3)}


def test_a_worked_example_does_not_answer_its_own_question():
    """A set may ask the same twice, and a worked example is not to be the label of a test question."""
    asked = ["Where is Lima?", "Where  is lima?", "Where is Quito?", "Where is Rome?"]
    files.write_jsonl("test.jsonl", [{"q": text, "a": f"Land {i}"} for i, text in enumerate(asked)])
    source = {"path": "test.jsonl", "fields": {"question": "q", "answer": "a"}}
    splits = {"shots": {"from": "test", "size": 2}, "test": {"from": "test", "size": 2}}
    seen = []
    for seed in range(8):
        options = {"dataset": "mine", "task": "qa", "source": source, "splits": splits, "seed": seed, "tests": []}
        assert main(prompts_words(options, "prompts.jsonl")) == 0
        for example in files.read_jsonl("prompts.jsonl"):
            *shown, _ = tasks.get("qa").prompt(example)
            answers = [turn["content"] for turn in shown if turn["role"] == "assistant"]
            repeats = "ima?" in example["question"] and any("ima?" in turn["content"] for turn in shown)
            seen.append(len(answers))
            assert not repeats
        Path("prompts.jsonl").unlink()
    assert {*seen} == {1, 2}, "one is left out where it repeats the question, and none elsewhere"


APART = "no two samples of a question are equal as texts; orce measure --group-by MODEL"


@pytest.mark.parametrize(
    ("answers", "times"), [(["Lima", "It is Lima."], 1), (["Lima", "lima."], 0), (["Lima", ""], 0)]
)
def test_samples_that_never_agree_are_told_in_one_line_at_every_door(answers, times, capsys):
    asked = {"id": "a", "question": "q?", "answers": answers, "reference": "Lima", "equality": "contains"}
    table = orce.confidence(None, [asked], ["consistency", "both"], settings=settings(["both"]))
    assert repr(table).count(APART) == times
    files.write_jsonl("q.jsonl", [asked])
    capsys.readouterr()
    assert main(["measure", "q.jsonl", "--methods", "semantic_entropy", "--out", "o.jsonl"]) == 0
    assert capsys.readouterr().out.count(APART) == times
    fields = {"id": "id", "question": "question", "answer": "reference"}
    spec = {"task": "qa", "source": {"path": "q.jsonl"}, "fields": fields}
    given = {"m": {"label": "M", "source": {}, "answers": {"path": "q.jsonl"}}}
    config = own_config("q", spec, given, ["num_sets"])
    dry_run.make(Path(), config, "results/q/m/num_sets/confidences.jsonl")
    assert capsys.readouterr().err.count(APART) == times
