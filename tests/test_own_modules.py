"""A user's own methods, rewards and tasks: mistakes end in one line that names the file, the function and what is expected; the words
of docs/extending.md work.

The signatures are told by the dry run; what a function returns or raises by the step that calls it.
"""

import copy
import itertools
import json
import re
import shutil
import sys
from pathlib import Path

import dry_run
import pytest
import yaml
from conftest import ARITHMETIC, ROOT, cases, program
from dry_run import called, snakemake

from orce import __main__ as steps
from orce import rewards, tasks
from orce.artefacts import files, store
from orce.config import load
from orce.config.check import check
from orce.errors import BadInput
from orce.methods.method import FUNCTIONS
from orce.records import Candidate, Greedy, Realised
from orce.runtime import modules
from orce.stages import elicit, pairs

PAPER = load.mapping(ROOT / "config.yaml")
HEAD = {
    "sampled": "LABEL, KIND = 'x', 'measured'\n",
    "prompted": "LABEL, KIND, SETTINGS = 'x', 'prompted', {'max_tokens': 8}\ndef prompt(example, task, settings): return [{'role': 'user', 'content': '?'}]\n",
    "stated": "LABEL, KIND = 'x', 'stated'\n",
    "asked": "LABEL, KIND, SETTINGS = 'x', 'prompted', {'max_tokens': 8}\ndef ask(example, answer, task, settings): return [{'role': 'user', 'content': '?'}]\n",
    "measured": "LABEL, KIND = 'x', 'measured'\n",
    "calibrated": "LABEL, KIND = 'x', 'fitted'\n",
    "reward": "LABEL = 'x'\n",
    "task": f"exec(open({ARITHMETIC!r}).read())\n",
}  # fmt: skip
EXAMPLES = tasks.get(ARITHMETIC).load({"size": 3}, "test", 0)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my").mkdir()
    modules.imported.cache_clear()  # a process of its own has read no module yet
    return tmp_path


def own(kind: str, text: str) -> str:
    """The path of a module of a kind that ends with `text`."""
    Path("my/x.py").write_text(HEAD[kind] + text)
    return "my/x.py"


def configured(kind: str) -> dict:
    config = copy.deepcopy(PAPER)
    if kind == "task":
        config["datasets"]["mine"] = {"task": "my/x.py", "source": {}, "splits": {"test": {"from": "test"}}}
    else:
        config.setdefault("rewards" if kind == "reward" else "methods", {})["mine"] = "my/x.py"
    return config


WRONG = cases("own_modules")


@pytest.mark.parametrize(("kind", "text", "message"), WRONG)
def test_a_wrong_signature_or_value_is_told_with_the_configuration(kind, text, message):
    own(kind, text)
    with pytest.raises(BadInput, match=message):
        check(configured(kind))


@pytest.mark.parametrize("kind", ["prompted", "measured"])
def test_the_dry_run_says_so_in_one_line(kind, folder):
    own(kind, next(text for one, text, _ in WRONG[1:] if one == kind))
    (folder / "over.yaml").write_text(yaml.safe_dump({"methods": {"mine": "my/x.py"}}))
    (folder / "config.yaml").write_text((ROOT / "config.yaml").read_text())
    code, said = snakemake(folder, "--snakefile", ROOT / "Snakefile", "--configfile", "over.yaml")
    assert code != 0 and "Traceback" not in said
    assert len([line for line in said.splitlines() if "my/x.py: " in line and "expected" in line]) == 1, said


def test_any_names_defaults_and_stars_are_right_where_the_call_is():
    for text in ("def state(a, b, c): ...", "def state(*all): ...", "def state(a, b, c, d=1): ...", "state = max"):
        own("sampled", text)
        modules.imported.cache_clear()
        check(configured("sampled"))


def run(*words) -> str:
    """What a step says that ends with one line of bad input."""
    code, said = called(steps.main, [*map(str, words)])
    assert code == 2 and "Traceback" not in said, said
    (told,) = [line for line in said.splitlines() if line.startswith("orce ")]
    return told


def frozen():
    files.write_jsonl("p.jsonl", EXAMPLES)
    greedy = {"answer": "1", "raw": "1", "correct": False, "f1": None}
    rows = [{"id": e["id"], "split": "test", "answers": ["1", "2"], "raw": ["1", "2"], "correct": [False, True], "greedy": greedy} for e in EXAMPLES]  # fmt: skip
    files.write_jsonl("x.jsonl", rows)
    for name in ("p.jsonl", "x.jsonl"):
        store.seal(name, n=3)


QUESTION = f"for question {EXAMPLES[0]['id']!r}"
STATE, MEASURE = "def state(answers, example, task): return {}", "def measure(seen, example, task): return {}"
RETURNED = [
    ("sampled", STATE, "None", ": returned None"), ("sampled", STATE, "0.5", ": returned 0.5"),
    ("sampled", STATE, "('1', 65.0)", ": returned ('1', 65.0)"), ("sampled", STATE, "('1', True)", ": returned ('1', True)"),
    ("sampled", STATE, "('1', float('nan'))", ": returned ('1', nan)"), ("sampled", STATE, "('1', '0.5')", ": returned ('1', '0.5')"),
    ("sampled", STATE, "({1}, 0.5)", ": returned ({1}, 0.5)"),
    ("sampled", STATE, "1 / 0", ", line 2: raised ZeroDivisionError: division by zero"),
    ("measured", MEASURE, "65.0", ": returned 65.0"), ("measured", MEASURE, "'high'", ": returned 'high'"),
    ("measured", MEASURE, "seen['logprob']", ", line 2: raised KeyError: 'logprob'"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "value", "said"), RETURNED)
def test_a_sampled_or_measured_method(kind, text, value, said):
    frozen()
    path = own(kind, text.format(value))
    told = run("derive", "--task", ARITHMETIC, "--method", path, "--prompts", "p.jsonl", "--samples", "x.jsonl", "--out", "c.jsonl")  # fmt: skip
    assert f"my/x.py {text.split('(')[0][4:]}(){said} {QUESTION}" in told
    assert kind == "measured" or "raised" in said or "; expected (answer, confidence from 0 to 1)" in told


@pytest.mark.parametrize(("fit", "apply", "said"), [
    ("None", "confidence", "my/x.py fit(): returned None; expected parameters, a dict that JSON can hold"),
    ("{'set': {1}}", "confidence", "my/x.py fit(): returned {'set': {1}}; expected parameters"),
    ("{}", "[100 * c for c in confidence]",
     "my/x.py apply(): returned [50.0]; expected probabilities from 0 to 1, one"),
    ("{}", "0.5", "my/x.py apply(): returned 0.5; expected probabilities"),
    ("confidence[99]", "confidence", "my/x.py fit(), line 2: raised IndexError: list index out of range"),
])  # fmt: skip
def test_a_calibration(fit, apply, said):
    frozen()
    text = f"def fit(confidence, correct): return {fit}\ndef apply(parameters, confidence): return {apply}\n"
    path = own("calibrated", text)
    rows = [{"id": f"other {i}", "answer": "1", "correct": i == 0, "f1": None, "confidence": 0.5} for i in range(3)]
    files.write_jsonl("c.jsonl", rows)
    store.seal("c.jsonl", n=3)
    files.write_jsonl("q.jsonl", [one | {"id": f"other {i}", "question": f"?{i}"} for i, one in enumerate(EXAMPLES)])
    store.seal("q.jsonl", n=3)
    options = json.dumps({"module": path, "task": ARITHMETIC, "label": "x", "method": "y+x", "below": ["y"]})
    told = run("fit", "--settings", options, "--fit-on", "test=q.jsonl", "--fit-confidences", "c.jsonl", "--prompts", "p.jsonl",
               "--confidences", "c.jsonl", "--out", "o.jsonl", "--fit", "fit.json")  # fmt: skip
    assert said in told


def asking(path: str, task: str = ARITHMETIC) -> dict:
    """Settings of elicit for a model that is not there: whoever gets as far as loading it hears of it."""
    model = {"source": {"path": "gone"}, "dtype": "float32", "device": "cpu", "template_kwargs": {}}
    return {"label": "x", "task": task, "method": "mine", "module": path, "options": {"max_tokens": 8, "shots": None},
            "seed": 1, "model": model, "engine": "transformers"}  # fmt: skip


@pytest.mark.parametrize("kind", ["prompted", "asked"])
@pytest.mark.parametrize(
    ("value", "said"), [("1, 2, 3", "returned (1, 2, 3)"), ("text.split()[0]", "line 3: raised IndexError")]
)
def test_a_reader_is_tried_on_an_empty_text_before_the_engine_starts(kind, value, said):
    frozen()
    takes = "text, example, task, settings" if kind == "prompted" else "text, settings"
    path = own(kind, f"def read({takes}): return {value}")
    told = run("elicit", "--settings", json.dumps(asking(path)), "--prompts", "p.jsonl", "--samples", "x.jsonl", "--out", "o.jsonl")  # fmt: skip
    assert "my/x.py read()" in told and said in told and "gone" not in told
    assert (QUESTION if kind == "prompted" else "for the text ''") in told


class Says:
    def generate(self, prompts, n, temperature, max_tokens, seeds, top_p=1.0):
        return [["I am 65% sure"] for _ in prompts]


@pytest.mark.parametrize(("kind", "text", "greedy", "said"), [
    ("prompted", "def read(text, example, task, settings): return None, 65.0 if text else None", None,
     r"my/x.py read\(\): returned \(None, 65.0\) for question .* confidence from 0 to 1"),
    ("asked", "def read(text, settings): return 65.0 if text else None", Greedy(answer="1", raw="1", correct=False, f1=None),
     r"my/x.py read\(\): returned 65.0 for the text 'I am 65% sure'; expected confidence"),
])  # fmt: skip
def test_a_percentage_in_place_of_a_fraction_names_the_module_that_gave_it(kind, text, greedy, said):
    settings = elicit.Settings(**asking(own(kind, text)))
    with pytest.raises(BadInput, match=said):
        elicit.records([(example, greedy) for example in EXAMPLES], Says(), elicit.way(settings), settings)


@pytest.mark.parametrize("prompt", ["'Sure?'", "[]", "[{'role': 'user'}]", "[{'role': 'user', 'content': 5}]"])
def test_a_conversation_is_a_list_of_messages(prompt):
    frozen()
    path = own("prompted", f"def prompt(example, task, settings): return {prompt}\ndef read(*all): return None, None")
    told = run("elicit", "--settings", json.dumps(asking(path)), "--prompts", "p.jsonl", "--out", "o.jsonl")
    said = f"my/x.py prompt(): returned {prompt} {QUESTION}; expected chat messages, a list of {{role, content}}"
    assert said in told


@pytest.mark.parametrize(("value", "said"), [
    ("confidence[:, 0]", "returned array([0.1, 0.1])"),
    ("None", "returned None"),
    ("confidence / 0 * float('nan')", "returned array([[nan, nan], [nan, nan]])"),
    ("confidence @ correct['x']", ", line 2: raised IndexError"),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_reward(value, said):
    path = own("reward", f"def reward(reference_confidence, reference_surrogate, confidence, surrogate, correct): return {value}")  # fmt: skip
    drawn = [Candidate("", k, True, [0.1, 0.7], [], [], k, []) for k in (0.2, 0.6)]
    asked = [Realised(id=str(i), prompt=[], kappa=k, correct=True) for i, k in enumerate((0.2, 0.6))]
    with pytest.raises(BadInput) as told:
        pairs.preference_records(asked, drawn, rewards.load(path), reference="stated", leave_one_out=False, seed=0)
    assert "my/x.py reward()" in str(told.value) and said in str(told.value)


@pytest.mark.parametrize(("text", "said"), [
    ("def extract(text, example): return text.split()[0]", "my/x.py extract(), line 2: raised IndexError: list index out of range"),
    ("def extract(text, example): return [text]", "my/x.py extract(): returned ['']"),
    ("def score(answer, example): return answer == '1'", "my/x.py score(): returned False"),
    ("def score(answer, example): return {'correct': 0.5, 'f1': None}", "my/x.py score(): returned {'correct': 0.5, 'f1': None}"),
    ("def display(answer, example): return answer", "my/x.py display(): returned None"),
    ("def prompt(example, shots=None): return example['question']", "my/x.py prompt(): returned 'What is"),
])  # fmt: skip
def test_a_task_is_tried_before_the_engine_starts(text, said):
    frozen()
    options = asking(own("task", text), "my/x.py")
    options = {key: options[key] for key in ("label", "task", "seed", "model", "engine")}
    options |= {"samples": 2, "temperature": 1.0, "top_p": 1.0, "max_tokens": 4, "shots": None}
    told = run("sample", "--settings", json.dumps(options), "--prompts", "test=p.jsonl", "--out", "o.jsonl")
    assert f"{said}" in told and QUESTION in told and "gone" not in told


def test_a_training_that_leaves_nothing_is_told(folder):
    frozen()
    Path("s.csv").write_text("id,split,n_correct,n_samples,kappa,answer,answer_correct\n" + "".join(f"{e['id']},rl,1,2,0.5,1,1\n" for e in EXAMPLES))  # fmt: skip
    store.seal("s.csv")
    arguments = ["--surrogate", "s.csv", "--prompts", "rl=p.jsonl", "--out", "out"]
    module = own("stated", "def train(pairs, settings, out): pass")
    config = load.mapping(ROOT / "config.yaml")
    training = {key: config["training"][key] for key in ("method", "lora", "checkpointing", "save_steps")}
    training |= {"shared_prefix": True}
    named = {key: asking(module)[key] for key in ("label", "task", "method", "module", "seed", "model")}
    options = json.dumps(named | {"training": training, "stage": {}})
    said = run("train", "--settings", options, *arguments)
    assert "my/x.py train(): left no out/manifest.json; expected what" in said
    modules.imported.cache_clear()
    own("stated", "def train(pairs, settings, out): pairs[99]")
    assert "my/x.py train(), line 2: raised IndexError" in run("train", "--settings", options, *arguments)


def test_a_right_module_is_left_as_it_is():
    path = own("task", "def twin(example): return example['id']")
    task, plain = tasks.get(path), tasks.get(ARITHMETIC)
    for example in EXAMPLES:
        assert task.prompt(example) == plain.prompt(example) and task.score("1", example) == plain.score("1", example)
    assert hasattr(task, "twin") and task.__name__ == "x" and tasks.get(path) is task


METHODS = ["vanilla", "consistency", "percent", "lead", "right", "sft", "orce", "orce-brier"]


PAGE = (ROOT / "docs" / "extending.md").read_text()


def test_the_page_has_every_kind_with_its_functions():
    for ways in FUNCTIONS.values():
        for contract in itertools.chain(*ways):
            assert f"`{contract.name}({contract.takes})` -> {contract.gives}" in PAGE, contract


# The page's command with the small model's configuration after the page's.
ARGUMENTS = ["--snakefile", ROOT / "Snakefile", "--cores", "2", "--configfile", "mine.yaml", "small.yaml"]


@pytest.fixture(scope="module")
def page_folder(letters, tmp_path_factory):
    """A folder with the files of the page as they stand there."""
    root = tmp_path_factory.mktemp("mine")
    blocks = re.findall(r"^```\w+\n# (\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for name, text in blocks:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    assert {name for name, _ in blocks} == {
        "my/larger.py", "my/percent.py", "my/lead.py", "my/right_or_wrong.py", "my/brier.py", "mine.yaml"
    }  # fmt: skip
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    config["models"]["llama3-8b"]["source"] = {"path": letters}
    (root / "config.yaml").write_text(yaml.safe_dump(config))
    shutil.copy(ROOT / "tests" / "data" / "extending.yaml", root / "small.yaml")
    return root


@pytest.fixture(scope="module")
def page_run(page_folder):
    done = program(Path(sys.executable).with_name("snakemake"), *ARGUMENTS, cwd=page_folder)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return page_folder


@pytest.mark.slow
def test_the_table_has_a_row_for_each(page_run):
    """And the run has its settings and pairs."""
    tex = (page_run / "paper_tables" / "mine.tex").read_text()
    for label in ("Percent", "Lead", "SFT on correctness", "Brier reward", "Consistency", "ORCE"):
        assert label in tex
    cell = page_run / "results" / "larger" / "llama3-8b"
    assert sorted(path.parent.name for path in cell.glob("*/metrics.json")) == sorted(METHODS)
    stage = files.read_json(cell / "right" / "manifest.json")["settings"]["stage"]
    assert (stage["right"], stage["epochs"]) == (95, 1)
    correct = {row["id"]: row["correct"] for row in files.read_jsonl(cell / "candidates.jsonl")}
    for pair in files.read_jsonl(cell / "pairs" / "brier.jsonl"):
        chosen, rejected = (int(pair[side][0]["content"].split()[-1]) for side in ("chosen", "rejected"))
        assert (chosen > rejected) == correct[pair["id"]]


@pytest.mark.slow
@pytest.mark.parametrize(("path", "text", "message"), [
    ("my/percent.py", "LABEL = (", "percent.py, line 1: "),
    ("my/percent.py", "LABEL, KIND = 'x', 'prompted'\n", "my/percent.py: no prompt; a prompted method has prompt, read"),
    ("my/percent.py", "LABEL, KIND = 'x', 'polled'\n", "KIND is 'polled'; a method is prompted, measured, stated, fitted"),
    ("my/right_or_wrong.py", "LABEL, KIND = 'x', 'stated'\n", "no WEIGHTS; a stated method without a training"),
    ("my/brier.py", "LABEL = 'x'\n", "my/brier.py: no reward; a reward has LABEL, reward"),
    ("my/brier.py", "1 / 0\n", "my/brier.py, line 1: ZeroDivisionError"),
])  # fmt: skip
def test_a_broken_module_ends_the_run_before_its_first_job(page_folder, path, text, message):
    whole = (page_folder / path).read_text()
    (page_folder / path).write_text(text)
    try:
        modules.imported.cache_clear()  # a process of its own has read no module yet
        code, said = dry_run.snakemake(page_folder, *ARGUMENTS)
    finally:
        (page_folder / path).write_text(whole)
    assert code != 0 and message in said and "Job stats" not in said
