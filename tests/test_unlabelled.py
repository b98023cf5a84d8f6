"""No label inside a confidence: whatever the references are, and without any, a row says the same of the same answers.

Each row is computed with the references as they are, exchanged between the questions, replaced by what the samples say, and left
out, and with opposite judgements. Answers and references are such that a look at a reference would show: several samples contain
it in other words, names are aliases of each other, and some answers cannot be read.
"""

import random
import shutil
from collections.abc import Iterable
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
def looking(folder):
    """A task and methods of a user's that look at every label they can find."""
    shutil.copytree(ROOT / "tests/data/looking", "looking")


KNOWN = methods.known()
OWN = ["looking/watching.py", "looking/choosing.py"]
OF_SAMPLES = [*sorted(name for name, method in KNOWN.items() if method.compares), *OWN, "both"]
ASKING = ["looking/asking.py", "looking/turning.py"]
OF_A_SERVER = ["likelihood", "sequence_probability", "min_likelihood", "topk", "cot", "linguistic", *ASKING]
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


@dataclass(frozen=True)
class Kind:
    """A task with an equality. texts: what answers say; references: of its questions in turn; more: further keys of a question."""

    name: str
    task: str
    texts: list[str]
    references: list[list]
    more: dict[str, Any]

    def question(self, i: int) -> dict[str, Any]:
        return {"id": f"q{i}", "question": f"What is it, of {i}?", **self.more}

    def answers(self, i: int) -> list[str]:
        """The greedy answer and K samples, the same in every call."""
        return random.Random(i).choices(self.texts, k=K + 1)

    def right(self, i: int) -> list[bool]:
        return [text in self.texts[:3] for text in self.answers(i)]

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


TASKS = {"arithmetic": ARITHMETIC, "worldfacts": WORLDFACTS, "looking": LOOKING}
KINDS = {
    case["name"]: Kind(**case | {"task": TASKS.get(case["task"], case["task"])}) for case in cases("labelled_kinds")
}
CONFIGURED = [name for name, kind in KINDS.items() if kind.task in ("qa", "choice", LOOKING)]
REFERENCES = ("as they are", "shuffled", "replaced")
ABSENT = "absent"
JUDGEMENTS = ("judged", "judged otherwise")


def labellings(kind: Kind) -> Ways:
    """Every way of saying which answers are right: for each question the keys that say it."""
    references = [kind.references[i % len(kind.references)] for i in range(N)]
    replaced = [kind.replaced(i) for i in range(N)]
    ways: Ways = {ABSENT: [{}] * N}
    for way, named in zip(REFERENCES, (references, references[1:] + references[:1], replaced), strict=True):
        ways[way] = [{"reference": one[0] if kind.task in ("choice", ARITHMETIC) else one} for one in named]
        if kind.task == LOOKING:
            ways[way] = [label | {"accepted": label["reference"]} for label in ways[way]]
    ways["judged"] = [{"correct": kind.right(i)} for i in range(N)]
    ways["judged otherwise"] = [{"correct": [not each for each in kind.right(i)]} for i in range(N)]
    return ways


@dataclass(frozen=True)
class Model:
    """What a door is told of a model. place: its folder or address; options: further ones; given: whether its answers are given."""

    place: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    given: bool = True

    def records(self, kind: Kind, labels: list[Label]) -> list[dict]:
        """What a user's file has: questions with their labels, and answers already made where they are given."""
        answers = [{"answers": kind.answers(i)} if self.given else {} for i in range(N)]
        return [kind.question(i) | answers[i] | label for i, label in enumerate(labels)]


def by_python(kind: Kind, ways: Ways, rows: list[str], model: Model) -> dict[str, Said]:
    said: dict[str, Said] = {}
    for way, labels in ways.items():
        options: Any = {"task": kind.task, "settings": settings(rows), **model.options}
        asked = [row for row in rows if row != "judge"]
        lines = orce.confidence(model.place, model.records(kind, labels), asked, **options).records
        for row in rows:
            name = Path(row).stem
            judged = [line.get("own", {}).get(name, line)["answer"] for line in lines]
            found = zip(judged, lines, strict=True)
            said.setdefault(way, {})[row] = [(answer, line["confidence"][name]) for answer, line in found]
    return said


def by_configuration(kind: Kind, ways: Ways, rows: list[str], model: Model) -> dict[str, Said]:
    """The rows of one run of the workflow, which has a data set and a model for each way of labelling."""
    names = {way: way.replace(" ", "-") for way in ways}
    own = {Path(row).stem: {"module": row} for row in rows if row.endswith(".py")}
    columns = {"id": "id", "question": "question", "choices": "choices", "answer": "reference"}
    datasets, models, tables = {}, {}, {}
    for way, labels in ways.items():
        name = names[way]
        source = {"server": model.place, "model": "m"} if "://" in str(model.place) else {"path": model.place}
        models[name] = {"label": name, "source": source if model.place else {}, "trains": False}
        if model.given:
            models[name]["answers"] = {"path": f"{name}.answers.jsonl"}
            files.write_jsonl(f"{name}.answers.jsonl", model.records(kind, labels))
        elif "server" in source:
            models[name]["api"] = {"logprobs": True}
        lines = [kind.question(i) | label for i, label in enumerate(labels)]
        spec = {"task": kind.task, "source": {"path": f"{name}.jsonl"}, "splits": {"test": {"from": "test"}}}
        if kind.task == LOOKING:
            whole = {"context": None, "choices": None, "reference": [], "accepted": []}
            lines = [whole | line for line in lines]
        else:
            spec["fields"] = {key: column for key, column in columns.items() if column in lines[0]}
            spec |= {key: value for key, value in kind.more.items() if key == "equality"}
        files.write_jsonl(f"{name}.jsonl", lines)
        datasets[name] = spec
        tables[name] = {"kind": "main", "dataset": name, "models": [name], "methods": [Path(row).stem for row in rows]}
    asking = {"samples": K, "max_tokens": 6, "chunk": 32}
    config = own_config("none", {}, models, [], methods=settings(rows) | own, answers=asking)
    config |= {"datasets": datasets, "tables": tables, "paper_tables": [*tables]}
    made = {
        (way, row): cells.Cell(name, name).confidences(Path(row).stem) for way, name in names.items() for row in rows
    }
    dry_run.make(Path(), config, *made.values())
    said: dict[str, Said] = {way: {} for way in ways}
    for (way, row), path in made.items():
        said[way][row] = [(line["answer"], line["confidence"]) for line in files.read_jsonl(path)]
    return said


def changed(door: str, name: str, rows: list[str], model: Model, judged=True) -> list:
    """(row, way of labelling) wherever a row does not say what it says in the first way that a door has for a kind."""
    left_out = () if judged else JUDGEMENTS
    if door == "configuration":  # whose data sets have references, or whose answers have judgements
        left_out += (ABSENT, *JUDGEMENTS) if name == "choice" else (ABSENT,)
    ways = {way: labels for way, labels in labellings(KINDS[name]).items() if way not in left_out}
    by = by_python if door == "python" else by_configuration
    (_, usual), *others = by(KINDS[name], ways, rows, model).items()
    assert others, "with what is it compared?"
    return [(row, way) for way, said in others for row in said if said[row] != usual[row]]


def quick(names: Iterable, *first) -> list:
    """The names as parameters, of which `make check` takes the first."""
    return [pytest.param(name, marks=[] if name in first else pytest.mark.slow) for name in names]


BOTH = [("python", name) for name in KINDS] + [("configuration", name) for name in CONFIGURED]
QUICK = [("python", name) for name in ("contains", "numeric", "worldfacts", "a user's")]


@pytest.mark.parametrize("where", quick(BOTH, *QUICK), ids=" ".join)
def test_given_answers_have_the_same_confidences(where):
    assert changed(*where, OF_SAMPLES, Model()) == []


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
@pytest.mark.parametrize(("door", "name"), BOTH)
def test_answers_that_are_sampled_have_the_same_confidences(door, name, direct):
    with server(KINDS[name]) as api:
        sampling = {} if door == "configuration" else {"samples": K, "max_tokens": 6}
        model = Model(api.address, {"server_model": "m"} | sampling, given=False)
        assert changed(door, name, [*OF_SAMPLES, *OF_A_SERVER], model, judged=False) == []


def known(kind: Kind) -> list[dict]:
    """Questions to fit on, with judgements of their answers."""
    return [kind.question(i) | {"answers": kind.answers(i), "correct": kind.right(i)} for i in range(N, 5 * N)]


@pytest.mark.parametrize("name", quick(KINDS, "contains"))
def test_grouped_samples_and_fitted_rows_have_the_same_confidences(name, direct):
    with server(KINDS[name]) as api:
        assert changed("python", name, OF_SAMPLES, Model(options={"group_by": api.address, "server_model": "m"})) == []
    assert changed("python", name, CALIBRATED, Model(options={"fit": known(KINDS[name])})) == []


@pytest.fixture(scope="module")
def weights(small, tmp_path_factory) -> str:
    """Folder of the small model, made to read longer prompts."""
    place = shutil.copytree(small, tmp_path_factory.mktemp("weights") / "model")
    config = files.read_json(place / "config.json")
    files.write_json(place / "config.json", config | {"max_position_embeddings": 4096})
    return str(place)


@pytest.mark.slow
@pytest.mark.parametrize(("door", "name"), BOTH)
def test_what_weights_say_of_given_answers_is_the_same(door, name, weights):
    model = Model(weights, {} if door == "configuration" else {"device": "cpu"})
    assert changed(door, name, OF_WEIGHTS, model) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["contains", "choice", "drop", "a user's"])
def test_a_trained_judge_and_probes_do_not_depend_on_the_labels_of_the_test(name, finished, weights):
    judge = Model(options={"judge": str(finished / CELL / "sft"), "device": "cpu"})
    assert changed("python", name, ["judge"], judge) == []
    fitted = Model(weights, {"fit": known(KINDS[name]), "device": "cpu"})
    assert changed("python", name, PROBES, fitted) == []


def test_a_users_key_that_asks_for_the_reference_is_named_in_one_line(capsys):
    wanting = Path(LOOKING).read_text().replace('example.get("accepted", [])', 'example["reference"]')
    Path(LOOKING).write_text(wanting)
    kind = KINDS["a user's"]
    files.write_jsonl("q.jsonl", Model().records(kind, labellings(kind)["as they are"]))
    assert main(["measure", "q.jsonl", "--methods", "agreement", "--task", LOOKING, "--out", "o.jsonl"]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if LOOKING in line]
    assert f"{LOOKING} key(), line 35: raised KeyError: 'reference' for question 'q" in line


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
            seen.append(len(answers))
            assert "ima?" not in example["question"] or not any("ima?" in turn["content"] for turn in shown)
        Path("prompts.jsonl").unlink()
    assert {*seen} == {1, 2}, "one is left out where it repeats the question, and none elsewhere"


@pytest.mark.parametrize(
    ("answers", "times"), [(["Lima", "It is Lima."], 1), (["Lima", "lima."], 0), (["Lima", ""], 0)]
)
def test_samples_that_never_agree_are_told_in_one_line_at_every_door(answers, times, capsys):
    apart = "no two samples of a question are equal as texts; orce measure --group-by MODEL"
    asked = {"id": "a", "question": "q?", "answers": answers, "reference": "Lima", "equality": "contains"}
    table = orce.confidence(None, [asked], ["consistency", "both"], settings=settings(["both"]))
    assert repr(table).count(apart) == times
    files.write_jsonl("q.jsonl", [asked])
    capsys.readouterr()
    assert main(["measure", "q.jsonl", "--methods", "semantic_entropy", "--out", "o.jsonl"]) == 0
    assert capsys.readouterr().out.count(apart) == times
    fields = {"id": "id", "question": "question", "answer": "reference"}
    spec = {"task": "qa", "source": {"path": "q.jsonl"}, "fields": fields}
    given = {"m": {"label": "M", "source": {}, "answers": {"path": "q.jsonl"}}}
    config = own_config("q", spec, given, ["num_sets"])
    dry_run.make(Path(), config, "results/q/m/num_sets/confidences.jsonl")
    assert capsys.readouterr().err.count(apart) == times
