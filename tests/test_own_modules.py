"""A user's own methods, rewards and tasks: mistakes end in one line that names the file, the function and what is expected; the words
of docs/extending.md work.

The signatures are told by the dry run; what a function returns or raises by the step that calls it.
"""

import contextlib
import itertools
import json
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from conftest import ARITHMETIC, ROOT, cases, program
from dry_run import called

import orce
from orce import __main__ as steps
from orce import tasks
from orce.artefacts import files, store
from orce.artefacts.records import Candidate, Greedy
from orce.config.check import check
from orce.errors import BadInput
from orce.methods.method import FUNCTIONS
from orce.runtime import modules
from orce.settings import load
from orce.stages import elicit

PAPER = load.read_mapping(ROOT / "config.yaml")
HEAD = {
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
    modules.import_file.cache_clear()  # a process of its own has read no module yet
    return tmp_path


def own(kind: str, text: str) -> str:
    """The path of a module of a kind that ends with `text`."""
    Path("my/x.py").write_text(HEAD.get(kind, "") + text)
    return "my/x.py"


@pytest.mark.parametrize(("kind", "text", "message"), cases("own_modules"))
def test_a_wrong_signature_or_value_is_told_with_the_configuration(kind, text, message):
    module = own(kind, text)
    if kind == "task":
        over = {"datasets": {"mine": {"task": module, "source": {}, "splits": {"test": {"from": "test"}}}}}
    else:
        over = {"rewards" if "reward" in kind else "methods": {"mine": module}}
    with pytest.raises(BadInput, match=message) if message else contextlib.nullcontext():
        check(load.merge(PAPER, over))


# {stage: (settings, further words)} of the stages that run a module, for a model that is not there:
# whoever gets as far as loading it hears of it.
STAGES = {stage: (settings, words) for stage, settings, words in cases("own_modules_stages")}
QUESTION = f"for question {EXAMPLES[0]['id']!r}"


@pytest.mark.parametrize(("stage", "kind", "text", "parts"), cases("own_modules_run"))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_a_function_returns_or_raises_is_told_before_a_model_is_loaded(stage, kind, text, parts):
    # what the stages read: questions, samples, confidences, kappa and candidates
    greedy = {"answer": "1", "raw": "1", "correct": False, "f1": None}
    sampled = {"split": "test", "answers": ["1", "2"], "raw": ["1", "2"], "correct": [False, True], "greedy": greedy}
    other = {"answer": "1", "f1": None, "confidence": 0.5}
    kappas, ids = (0.2, 0.6, 0.6), [one["id"] for one in EXAMPLES]
    store.write("p.jsonl", EXAMPLES)
    store.write("x.jsonl", [{"id": name} | sampled for name in ids])
    store.write("c.jsonl", [other | {"id": f"other {i}", "correct": i == 0} for i in range(3)])
    store.write("q.jsonl", [one | {"id": f"other {i}", "question": f"?{i}"} for i, one in enumerate(EXAMPLES)])
    drawn = zip(ids, kappas, strict=True)
    store.write("d.jsonl", [Candidate(name, k, True, [0.1, 0.7], [], [], k, [-5.0] * 101) for name, k in drawn])
    lines = ["id,split,n_correct,n_samples,kappa,answer,answer_correct", *(f"{name},rl,1,2,0.5,1,1" for name in ids)]
    with store.writing("s.csv") as handle:
        handle.write("\n".join(lines) + "\n")
    own(kind, text)
    settings, more = STAGES[stage]
    words = [stage, *(["--settings", json.dumps(settings)] if settings else []), *more.split()]
    words = [word.replace("ARITHMETIC", ARITHMETIC) for word in words]
    code, said = called(steps.main, [*words, "--out", "out"])
    assert code == 2 and "Traceback" not in said, said
    (told,) = [line for line in said.splitlines() if line.startswith("orce ")]
    assert "gone" not in told
    for part in parts:
        assert part.replace("QUESTION", QUESTION) in told


@pytest.mark.parametrize(("kind", "text", "greedy", "said"), [
    ("prompted", "def read(text, example, task, settings): return None, 65.0 if text else None", None,
     r"my/x.py read\(\): returned \(None, 65.0\) for question .* confidence from 0 to 1"),
    ("asked", "def read(text, settings): return 65.0 if text else None", Greedy(answer="1", raw="1", correct=False, f1=None),
     r"my/x.py read\(\): returned 65.0 for the text 'I am 65% sure'; expected confidence"),
])  # fmt: skip
def test_a_percentage_in_place_of_a_fraction_names_the_module_that_gave_it(kind, text, greedy, said):
    own(kind, text)
    settings = elicit.ElicitSettings(**STAGES["elicit"][0] | {"task": ARITHMETIC})
    engine = SimpleNamespace(generate=lambda prompts, *_, **more: [["I am 65% sure"] for _ in prompts])
    with pytest.raises(BadInput, match=said):
        elicit.Elicitation(settings).elicit([(example, greedy) for example in EXAMPLES], engine)


def test_a_file_whose_name_cannot_be_a_rows_is_told_as_a_method():
    Path("my-own.py").write_text(HEAD["measured"] + "def measure(seen, example, task): return 0.5\n")
    message = r"^--methods \(methods=\): methods: 'my-own' cannot be a name here; expected small letters, digits"
    with pytest.raises(BadInput, match=message):
        orce.confidence(None, [{"question": "?", "answers": ["x", "y"]}], ["my-own.py"])


PAGE = (ROOT / "docs" / "extending.md").read_text()


def test_the_page_has_every_kind_with_its_functions():
    for ways in FUNCTIONS.values():
        for contract in itertools.chain(*ways):
            assert f"`{contract.name}({contract.takes})` -> {contract.gives}" in PAGE, contract


METHODS = ["vanilla", "consistency", "percent", "lead", "right", "sft", "orce", "orce-brier"]
# Names that a shell, Snakemake, LaTeX or a browser would obey.
NAME = 'it\'s a "test" {x}; $(touch pwned) `touch pwned` | tee pwned & 模型 *?[a] %s \\n #'
CODE = "</script><script>alert(1)</script> {x} $x$ \\input{/etc/passwd} .. raw:: html _a_ |b| `c`"


@pytest.mark.slow
def test_what_the_page_says_runs_as_it_stands_there_and_obeys_no_name_of_a_folder_model_or_row(letters, tmp_path):
    root = tmp_path / NAME

    def snakemake(*more) -> None:
        """The page's command with the small model's configuration after the page's."""
        command = ["--cores", "2", "--configfile", "mine.yaml", "small.yaml", *more]
        done = program(Path(sys.executable).with_name("snakemake"), *command, cwd=root)
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]

    for name in ("workflow", "profiles"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "Snakefile", root)
    blocks = re.findall(r"^```\w+\n# (\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for name, text in blocks:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    model = shutil.copytree(letters, root / "my model; touch pwned")
    config = load.read_mapping(ROOT / "config.yaml")
    config["models"]["llama3-8b"] |= {"source": {"path": str(model)}, "label": CODE}
    (root / "config.yaml").write_text(yaml.safe_dump(config))
    shutil.copy(ROOT / "tests" / "data" / "extending.yaml", root / "small.yaml")
    snakemake()
    tex = (root / "paper_tables" / "mine.tex").read_text()
    for label in ("Percent", "Lead", "SFT on correctness", "Brier reward", "Consistency", "ORCE"):
        assert label in tex
    cell = root / "results" / "larger" / "llama3-8b"
    assert sorted(path.parent.name for path in cell.glob("*/metrics.json")) == sorted(METHODS)
    stage = files.read_json(cell / "right" / "manifest.json")["settings"]["stage"]
    assert (stage["right"], stage["epochs"]) == (95, 1)
    correct = {row["id"]: row["correct"] for row in files.read_jsonl(cell / "candidates.jsonl")}
    for pair in files.read_jsonl(cell / "pairs" / "brier.jsonl"):
        chosen, rejected = (int(pair[side][0]["content"].split()[-1]) for side in ("chosen", "rejected"))
        assert (chosen > rejected) == correct[pair["id"]]
    assert (root / "paper_tables" / "tables.pdf").read_bytes().startswith(b"%PDF")
    logs = {path.parent.name for path in (root / "results" / "logs").rglob("*.log")}
    rules = "prompts sample elicit surrogate sft train candidates pairs dpo state derive evaluate"
    assert {*rules.split()} <= logs
    rows = {name: name.upper() for name in METHODS} | {"percent": CODE}
    (root / "labels.yaml").write_text(yaml.safe_dump({"tables": {"mine": {"methods": rows}}}))
    snakemake("labels.yaml", "--", "all")
    snakemake("labels.yaml", "--report", "report.html", "--", "all")
    report = (root / "report.html").read_text()
    assert "<script>alert" not in report and "root:x:0" not in report
    assert not [*tmp_path.rglob("pwned*")]
