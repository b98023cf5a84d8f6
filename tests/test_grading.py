"""Grading by a model: what it is asked, what its replies count for, which samples mean the same, and what a run makes of it."""

import json
import os
import subprocess
import sys
import time
from typing import Any

import msgspec
import pytest
import yaml
from conftest import ROOT, own_config, program, prompts_words, typed
from dry_run import snakemake
from test_any_data import written
from test_apis import Api, choice
from test_workflow import job_counts
from test_workflow import snakemake as run_snakemake

import orce
from orce import methods, stages, tasks
from orce.__main__ import main
from orce.apps.planned import commands
from orce.artefacts import files, store
from orce.artefacts.records import Sample
from orce.config import check as configuration
from orce.config import picking
from orce.errors import BadInput
from orce.given import records as given_records
from orce.given.grading import ByMeaning, grade_form
from orce.settings.stage import to_argument
from orce.stages import likelihoods, state

TOWNS = ["Lima", "Rome", "Oslo", "Cairo", "Quito", "Seoul"]
# How a model may answer "Which town is number 1?" (Rome): what is said, whether it equals the reference as the task compares,
# and whether it is right.
SAID = [("{}", True, True), ("It is {}.", False, True), ("It is not {}.", False, False), ("Atlantis", False, False)]


class Grader(Api):
    """A grader on a server, which knows the right answer; `says(body) -> text` may say something else."""

    def __init__(self, says=None):
        tell, usage = says or verdict, {"prompt_tokens": 9, "completion_tokens": 1}
        super().__init__(lambda body, headers: (200, {"choices": [choice(tell(body))], "usage": usage}))

    def asked(self) -> list[str]:
        return [body["messages"][-1]["content"] for body in self.bodies]


def verdict(body) -> str:
    text = body["messages"][-1]["content"]
    if "First answer" in text:
        one, other = (text.split(f"{name} answer: ")[1].split("\n")[0] for name in ("First", "Second"))
        return "Yes." if meaning(one) == meaning(other) else "No."
    answer = text.split("\nAnswer: ")[1].split("\n")[0]
    reference = text.split("Accepted answer: ")[1].split("\n")[0]
    return "yes" if meaning(answer) == reference else "no"


def meaning(answer: str) -> str:
    """Rome for what says that it is Rome, and else the answer itself."""
    name = answer.removeprefix("It is ").removesuffix(".")
    return answer if name.startswith("not ") else name


def record(i: int) -> dict:
    town = TOWNS[i % len(TOWNS)]
    answers = [said.format(town) for said, *_ in SAID] + [town]
    return {"qid": f"q{i}", "question": f"Which town is number {i}?", "reference": town, "id": f"q{i}",
            "answers": answers, "greedy": f"It is {town}." if i % 2 else "Atlantis"}  # fmt: skip


def config_of(folder, server="http://127.0.0.1:9/v1", n=6, mode="grader", **grading) -> dict:
    """A configuration of given answers to n questions, graded by a model on a server."""
    written(folder / "samples.jsonl", [record(i) for i in range(n)])
    fields = {"id": "qid", "question": "question", "answer": "reference"}
    spec = {"task": "qa", "source": {"path": "samples.jsonl"}, "grading": mode, "fields": fields}
    models = {
        "api": {"label": "An API", "source": {}},
        "grader": {"label": "Grader", "source": {"server": server, "model": "j"}, "confidence": "weights"},
        "weights": {"label": "Weights", "source": {"path": "weights"}},
    }
    rows = ["consistency", "agreement", "semantic_entropy", "num_sets"]
    return own_config(
        "towns", spec, models, rows, grading={"model": "grader"} | grading,
        answers={"path": "samples.jsonl", "chunk": 4}, evaluation={"bootstrap": 100},
    )  # fmt: skip


@pytest.fixture
def place(folder, direct):
    """The folder of the run."""
    return folder


def command(config: dict, place) -> list[str]:
    """The command line of grading the given answers, which are imported first."""
    checked = configuration.check(config)
    known = typed({"grading": {"model": "grader"}} | config)
    cell, frozen = place / "results/towns/api", place / "results/towns/prompts/test.jsonl"

    def words(stage: str, *options: str) -> list[str]:
        chosen = picking.with_contents(stages.pick_settings(stage, known, "towns", "api"))
        named = ["--settings", to_argument(chosen), "--prompts", f"test={frozen}"]
        return [stage.replace("_", "-"), *named, *options]

    def out(name: str) -> list[str]:
        return ["--out", f"{cell}/{name}.jsonl", "--manifest", f"{cell}/{name}.manifest.json"]

    if not frozen.exists():
        assert main(prompts_words(picking.with_contents(stages.pick_settings("prompts", known, "towns")), frozen)) == 0
        assert main(words("import_answers", *out("ungraded-samples"))) == 0
    made = ("verdicts", "disagreements", *(["meanings"] if picking.groups_meanings(checked) else []))
    paths = [word for name in made for word in (f"--{name}", f"{cell}/{name}.jsonl")]
    return words("grade", "--samples", f"{cell}/ungraded-samples.jsonl", *paths, *out("samples"))


def graded(config: dict, place) -> tuple[list[dict], dict]:
    """(records, the manifest's `grading`) after the grade step."""
    assert main(command(config, place)) == 0
    path = place / "results/towns/api/samples.jsonl"
    return store.read(path), store.manifest_facts(path)["grading"]


def lines(place, name) -> list[dict]:
    return files.read_jsonl(place / f"results/towns/api/{name}.jsonl")


@pytest.mark.parametrize(("read", "replies"), [
    (True, ["yes", " **Yes.** ", "Yes\nBecause it is the capital.", "<think>no ... yes?</think>\n\nyes",
            "Both say Rome.\nVerdict: yes", "The answer is yes.", '{"verdict": "yes"}', "- yes"]),
    (False, ["No", "no, it names another town"]),
    (None, ["The answer is yes.\n\nThe answer is not the same as the accepted one.", "Yes.\nThe answer is no.", "yes and no",
            "Yes, though no expert would say so", "Yesterday", "It is Rome", "", "0.9"]),
])  # fmt: skip
def test_a_reply_is_one_of_the_two_words_or_unread(read, replies):
    assert {text: grade_form().verdict(text) for text in replies} == dict.fromkeys(replies, read)


def test_the_words_are_those_of_the_template(tmp_path):
    own = tmp_path / "mine.j2"
    shown = '{{ question }} {{ references | join("|") }} {{ answer }}'
    own.write_text(f'{{% set right, wrong = "CORRECT", "INCORRECT" %}}\n{shown}')
    form = grade_form(str(own))
    shown = form.messages(question="Where?", references=["Rome", "Roma"], answer="There {{ 7 * 7 }}")
    assert shown == [{"role": "user", "content": "Where? Rome|Roma There {{ 7 * 7 }}"}]
    replies = ("INCORRECT", "Correct.", "yes", "INCORRECT. CORRECT")
    assert [form.verdict(text) for text in replies] == [False, True, None, None]
    own.write_text('{% set right, wrong = "A", "B" %}{{ question }}{{ references }}{{ answer }}')
    letters = grade_form(str(own))
    assert [letters.verdict(text) for text in ("A", "B.", "A town in Italy", "Grade: B")] == [True, False, None, False]


@pytest.mark.parametrize(("text", "line"), [
    ("{{ question }} {{ references }}", "does not show answer"),
    ("{{ question }} {{ reference }} {{ answer }}", "'reference' is undefined"),
    ("{% if %}", "not a template"),
    ("{% set right, wrong = 'ok', 'ok' %}{{ question }}{{ references }}{{ answer }}", "expected two words"),
    ("{{ cycler.__init__.__globals__.os.system('touch pwned') }}", "unsafe"),
    ("{{ self.__init__.__globals__['__builtins__'].open('pwned', 'w') }}", "unsafe"),
    ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
    ("{% set kept = references.append('Rome') %}", "not a template with question, references, answer"),
    ("{{ 1 / 0 }}", "division by zero"),
    ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "takes more than 3 s; it may loop for ever"),
    ("{% for i in range(10**9) %}{% endfor %}", "Range too big"),
    ("{{ 'x' * 10**14 }}", "not a template"),
])  # fmt: skip
def test_a_template_that_cannot_ask_is_refused_before_the_run(place, text, line):
    (place / "mine.j2").write_text(text)
    config = config_of(place, prompt="mine.j2")
    (place / "weights").mkdir()
    configuration.check(config)
    with pytest.raises(BadInput, match=line) as raised:
        configuration.data(typed(config))
    assert "mine.j2" in str(raised.value) and "\n" not in str(raised.value)
    assert not [*place.rglob("pwned")]


def test_the_grader_reads_sentences_and_where_it_differs_is_listed(place, capfd):
    with Grader() as grader:
        records, counts = graded(config_of(place, grader.address), place)
    assert [one["correct"] for one in records] == [[True, True, False, False, True]] * 6
    assert [one["greedy"]["correct"] for one in records] == [i % 2 == 1 for i in range(6)]
    exact = store.read(place / "results/towns/api/ungraded-samples.jsonl")
    assert [one["correct"] for one in exact] == [[True, False, False, False, True]] * 6
    assert all({**one, "graded": None}.keys() == {**other, "graded": None}.keys() for one, other in zip(records, exact, strict=True))  # fmt: skip
    assert len(grader.bodies) == len(set(grader.asked())) == 24, "each distinct answer is asked about once"
    assert all(body["temperature"] == 0 for body in grader.bodies)
    listed = lines(place, "disagreements")
    keys = ("id", "answer", "exact", "right")
    expected = [[f"q{i}", f"It is {TOWNS[i]}", False, True] for i in range(6)]
    assert [[one[key] for key in keys] for one in listed] == expected
    assert listed[1]["references"] == ["Rome"] and listed[1]["raw"] == "yes" and listed[1]["texts"] == 2
    assert counts == {"asked": 24, "unread": 0, "only_grader": 9, "only_exact": 0, "disagreements": 6}
    assert "the grader alone says right of 9" in capfd.readouterr().err


def test_rubbish_is_counted_and_the_exact_grade_stands(place, capfd):
    with Grader(lambda body: "Well, that depends.") as grader:
        records, counts = graded(config_of(place, grader.address), place)
    assert [one["correct"] for one in records] == [[True, False, False, False, True]] * 6
    assert (counts["unread"], counts["disagreements"]) == (24, 0)
    assert "24 replies could not be read: the exact grade counts there" in capfd.readouterr().err
    unread = [one for one in lines(place, "verdicts") if one["right"] is None]
    assert len(unread) == 24 and {one["raw"] for one in unread} == {"Well, that depends."}


def test_labels_that_came_with_the_answers_are_the_exact_grades(place):
    """Published outputs, graded by somebody's model: the wrong labels are found."""
    with Grader() as grader:
        config = config_of(place, grader.address)
        rows = [record(i) | {"correct": [True, True, True, False, True]} for i in range(6)]
        written(place / "samples.jsonl", rows)
        records, counts = graded(config, place)
    assert [one["correct"] for one in records] == [[True, True, False, False, True]] * 6
    assert counts["only_exact"] == 6 and counts["disagreements"] == 6


def test_a_question_without_a_reference_cannot_be_graded(place, capfd):
    config = config_of(place)
    del config["datasets"]["towns"]["fields"]["answer"]
    rows = [record(i) | {"correct": [True] * 5} for i in range(3)]
    written(place / "samples.jsonl", rows)
    config["answers"]["path"] = "own.jsonl"
    written(place / "own.jsonl", [{key: row[key] for key in ("id", "answers", "correct")} for row in rows])
    assert main(command(config, place)) == 2
    assert "'q0' has no reference" in capfd.readouterr().err


def test_a_grader_that_only_groups_needs_no_reference_and_asks_about_none(place):
    with Grader() as grader:
        config = config_of(place, grader.address, n=3, group="grader", grades=False)
        del config["datasets"]["towns"]["fields"]["answer"]
        rows = [record(i) | {"correct": [True, False, True, False, True]} for i in range(3)]
        config["answers"]["path"] = "own.jsonl"
        written(place / "own.jsonl", [{key: row[key] for key in ("id", "answers", "correct")} for row in rows])
        records, counts = graded(config, place)
        assert all("First answer" in body["messages"][-1]["content"] for body in grader.bodies)
    assert [one["meanings"] for one in records] == [[0, 0, 1, 2, 0]] * 3
    assert [one["correct"] for one in records] == [[True, False, True, False, True]] * 3 and counts == {
        "disagreements": 0
    }


@pytest.mark.slow
def test_a_killed_grader_goes_on_and_ends_with_the_same_bytes(place):
    def slow(body):
        time.sleep(0.03)
        return verdict(body)

    with Grader(slow) as grader:
        words = [sys.executable, "-m", "orce", *command(config_of(place, grader.address, n=24, group="grader"), place)]
        fast = {"ORCE_SPEED": json.dumps({"answers": {"chunk": 8, "concurrency": 2}})}
        cell = place / "results/towns/api"
        made = [cell / f"{name}.jsonl" for name in ("samples", "verdicts", "disagreements", "meanings")]
        first = subprocess.Popen(words, env=os.environ | fast, stderr=subprocess.DEVNULL)
        limit = time.monotonic() + 60
        while len([*cell.glob(".partial/meanings.jsonl.*/*.jsonl")]) < 2:
            assert time.monotonic() < limit and first.poll() is None
            time.sleep(0.01)
        first.kill()
        first.wait()
        assert not (cell / "samples.jsonl").exists()
        before = set(grader.asked())
        grader.bodies.clear()
        program(*words, check=True, **fast)
        again = grader.asked()
        assert 0 < len(again) and len(set(again) & before) <= 8 * 4, "one chunk at most"
        resumed = [path.read_bytes() for path in made]
        program("rm", "-r", *made, cell / ".partial", check=True)
        program(*words, check=True, **fast)
        assert [path.read_bytes() for path in made] == resumed


def test_samples_that_the_grader_calls_the_same_are_one_meaning(place):
    with Grader() as grader:
        records, _ = graded(config_of(place, grader.address, group="grader"), place)
    assert [one["meanings"] for one in records] == [[0, 0, 1, 2, 0]] * 6
    assert [one["greedy"]["meaning"] for one in records] == [0 if i % 2 else 2 for i in range(6)]
    task = tasks.get("qa")
    example = {"id": "q1", "question": "?", "reference": ["Rome"], "context": None, "choices": None}
    grouped = msgspec.convert(records[1], Sample)
    by_text = msgspec.structs.replace(grouped, meanings=msgspec.UNSET)

    def confidence(name, one):
        method, seen = methods.load(name), ByMeaning(task, one)
        said = (
            method.state(one.answers, example, seen)[1]
            if name == "consistency"
            else method.measure(one.seen(), example, seen)
        )
        return round(said, 3)

    names = ("consistency", "agreement", "num_sets", "semantic_entropy")
    assert [confidence(name, grouped) for name in names] == [0.6, 0.6, 0.5, 0.41]
    assert [confidence(name, by_text) for name in names] == [0.4, 0.2, 0.25, 0.172]
    said = given_records.score_answer(grouped, "It is Rome", example, task)
    assert (said.correct, said.f1) == (True, None), "an answer that a method takes from the samples has their grade"
    ideas = likelihoods.p_true_prompt(task, example, grouped)[0]["content"]
    assert "It is Rome" not in ideas.split("Possible")[0] and "Rome\nIt is not Rome\nAtlantis" in ideas
    assert "Rome\nIt is Rome\nIt is not Rome" in likelihoods.p_true_prompt(task, example, by_text)[0]["content"]


def test_a_comparison_that_cannot_be_read_joins_nothing(place, capfd):
    def says(body):
        return "Hm." if "First answer" in body["messages"][-1]["content"] else verdict(body)

    with Grader(says) as grader:
        records, _ = graded(config_of(place, grader.address, n=1, group="grader"), place)
    assert records[0]["meanings"] == [0, 1, 2, 3, 0]
    assert "6 comparisons of answers could not be read" in capfd.readouterr().err


@pytest.fixture(scope="module")
def nli(tiny, tmp_path_factory) -> str:
    """Folder of a tiny NLI model, with random weights."""
    import torch
    from transformers import AutoTokenizer
    from transformers.models.bert.configuration_bert import BertConfig
    from transformers.models.bert.modeling_bert import BertForSequenceClassification

    folder, tokenizer = tmp_path_factory.mktemp("nli"), AutoTokenizer.from_pretrained(tiny)
    torch.manual_seed(3)
    names = {0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"}
    size: Any = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertForSequenceClassification(
        BertConfig(vocab_size=len(tokenizer), id2label=names, label2id={v: k for k, v in names.items()}, **size,
                   pad_token_id=tokenizer.pad_token_id, max_position_embeddings=128)
    )  # fmt: skip
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_answers_that_agree_in_one_order_alone_differ_and_a_further_one_joins_the_first_group_that_agrees(place):
    def says(body) -> str:
        text = body["messages"][-1]["content"]
        if "First answer" not in text:
            return verdict(body)
        one, other = (text.split(f"{name} answer: ")[1].split("\n")[0].rstrip(".") for name in ("First", "Second"))
        if "Atlantis" in (one, other):  # is the same as each but the denial
            return "No." if "not" in one + other else "Yes."
        return "Yes." if one in TOWNS and other == f"It is {one}" else "No."

    with Grader(says) as grader:
        records, _ = graded(config_of(place, grader.address, group="grader"), place)
    assert [one["meanings"] for one in records] == [[0, 1, 2, 0, 0]] * 6
    assert [one["greedy"]["meaning"] for one in records] == [i % 2 for i in range(6)]


def biased(folder: str, towards_entailment: float) -> str:
    import torch
    from transformers.models.auto.modeling_auto import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        model.classifier.bias[2] = towards_entailment
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(("bias", "groups"), [(50.0, [0, 0, 0, 0, 0]), (-50.0, [0, 1, 2, 3, 0])])
def test_an_nli_model_that_is_named_by_its_folder_groups_the_samples(place, nli, bias, groups):
    spec: dict[str, Any] = {"n": 3, "group": "nli", "nli": {"path": biased(nli, bias)}}
    with Grader() as grader:
        records, _ = graded(config_of(place, grader.address, **spec), place)
        assert len(grader.bodies) == 12, "the grader grades, the NLI model groups"
    assert [one["meanings"] for one in records] == [groups] * 3
    compared = lines(place, "meanings")[0]["compared"]
    assert {len(pair["raw"]) for pair in compared} == {2} and "spent" not in lines(place, "meanings")[0]


def test_without_a_grader_an_nli_model_groups_and_the_exact_grades_count(place, nli):
    records, _ = graded(config_of(place, n=3, model=None, group="nli", nli={"path": biased(nli, 50.0)}), place)
    assert [one["meanings"] for one in records] == [[0, 0, 0, 0, 0]] * 3
    assert [one["correct"] for one in records] == [[True, False, False, False, True]] * 3
    assert (place / "results/towns/api/verdicts.jsonl").read_text() == "", "nobody was asked"


@pytest.mark.slow
@pytest.mark.parametrize(("bias", "agreement"), [(50.0, 1.0), (-50.0, 1 / 3)])
def test_the_door_takes_an_nli_model_to_group_by(nli, bias, agreement):
    replies = ["It is Rome.", "The eternal city.", "The capital of Italy."]
    questions = [{"question": "Which town?", "reference": "Rome", "answers": replies}]
    table = orce.confidence(
        None, questions, ["agreement"], group_by=biased(nli, bias), equality="contains", device="cpu"
    )
    (row,) = table.records
    assert (row["correct"], row["confidence"]["agreement"]) == (True, agreement)


@pytest.mark.slow
def test_an_nli_models_labels_do_not_depend_on_the_batch_and_one_without_entailment_is_refused(nli, tmp_path):
    from transformers import AutoConfig, AutoTokenizer
    from transformers.models.auto.modeling_auto import AutoModelForSequenceClassification

    from orce.llm import reading
    from orce.settings.stage import Encoder, Source

    def options(folder):
        return Encoder(source=Source(path=str(folder)), dtype="float32", device="cpu")

    pairs = [("a b c", "a"), ("x", "y z " * 9), ("Lima", "Lima"), ("q", "r")]
    assert reading.Nli(options(nli), 4096).labels(pairs) == reading.Nli(options(nli), 1).labels(pairs)
    config = AutoConfig.from_pretrained(nli, num_labels=2)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(nli).save_pretrained(tmp_path)
    with pytest.raises(BadInput, match="its labels are label_0, label_1; an NLI model has a label `entailment`"):
        reading.Nli(options(tmp_path), 4096)


@pytest.mark.parametrize(("change", "line"), [
    (lambda c: c.pop("grading"), "datasets.towns.grading: needs a grader"),
    (lambda c: c["grading"].update(model="nobody"), "grading.model: 'nobody' is not a model with weights or a server; they are grader, weights"),
    (lambda c: c["grading"].update(model="api"), "grading.model: 'api' is not a model with weights"),
    (lambda c: c["grading"].update(model=None), "grading.model: None is not a model with weights or a server"),
    (lambda c: c["grading"].update(group="nli"), "grading.nli: goes with group: nli"),
    (lambda c: c["grading"].update(grades=False), "grading.grades: false leaves nothing to ask without a group"),
    (lambda c: c["grading"].update(prompt="mine.txt"), "grading.prompt"),
    (lambda c: c["datasets"]["towns"].update(grading="both"), "datasets.towns.grading: 'both'; expected exact or grader"),
])  # fmt: skip
def test_a_grader_that_is_not_there_is_said_at_once(place, change, line):
    config = config_of(place)
    change(config)
    with pytest.raises(BadInput, match=line):
        configuration.check(config)


def planned(place, config, *more) -> tuple[int, str]:
    (place / "weights").mkdir(exist_ok=True)
    (place / "config.yaml").write_text(yaml.safe_dump(config))
    return snakemake(place, "--snakefile", str(ROOT / "Snakefile"), "--cores", "1", "-p", *more)


def test_the_rule_stands_only_where_a_dataset_is_graded(place):
    config = config_of(place)
    code, said = planned(place, config)
    assert code == 0, said
    assert job_counts(said)["grade"] == 1 and "results/towns/api/ungraded-samples.jsonl" in said
    config["datasets"]["towns"]["grading"] = "exact"
    code, said = planned(place, config)
    assert code == 0 and "grade" not in job_counts(said) and job_counts(said)["import_answers"] == 1
    other = config["datasets"]["towns"] | {"grading": "grader"}
    config["datasets"]["cities"] = other
    config["tables"]["cities"] = config["tables"]["towns"] | {"dataset": "cities"}
    code, said = planned(place, config, "results/towns/api/samples.jsonl", "results/cities/api/samples.jsonl")
    assert code == 0 and job_counts(said) == {"prompts": 2, "import_answers": 2, "grade": 1}


@pytest.mark.parametrize("shards", [1, 2])
def test_graded_samples_are_made_by_the_grader_alone(place, shards):
    config = config_of(place)
    config["answers"] |= {"path": None, "shards": shards, "samples": 4}
    config["models"]["api"]["answers"] = {"path": "samples.jsonl"}
    for model, ungraded in (("api", "import-answers"), ("weights", "sample" if shards == 1 else "gather")):
        code, said = planned(place, config, f"results/towns/{model}/samples.jsonl")
        assert code == 0, said
        made_by = {job.out: job.stage for job in commands(said)}
        assert made_by[f"results/towns/{model}/samples.jsonl"] == "grade"
        assert made_by[f"results/towns/{model}/ungraded-samples.jsonl"] == ungraded


@pytest.mark.slow
def test_a_table_of_graded_answers_through_snakemake(place):
    with Grader() as grader:
        config = config_of(place, grader.address, group="grader")
        (place / "weights").mkdir()
        (place / "config.yaml").write_text(yaml.safe_dump(config))
        run_snakemake("--cores", "2", "--", "all", folder=place)
    cell = place / "results/towns/api"
    for name, accuracy in (("consistency", 1), ("agreement", 0.5)):
        assert files.read_json(cell / name / "metrics.json")["accuracy"] == accuracy
    kappas = [line.split(",")[4] for line in (cell / "surrogate.csv").read_text().splitlines()[1:]]
    assert kappas == ["0.6"] * 6


def test_the_confidence_llm_may_read_the_reasoning(place):
    replies = [f"Let me think about {town}.\nAnswer: {town}" for town in TOWNS]
    rows = [record(i) | {"answers": [replies[i], "I cannot say."], "greedy": replies[i]} for i in range(6)]
    config = config_of(place, mode="exact")
    config["datasets"]["towns"]["judge_reads"] = "reasoning"
    written(place / "samples.jsonl", rows)
    del config["grading"]
    command(config, place)
    samples, frozen = place / "results/towns/api/ungraded-samples.jsonl", place / "results/towns/prompts/test.jsonl"
    table, task = place / "surrogate.csv", tasks.get("qa")
    assert main(["surrogate", "--samples", str(samples), "--seed", "1", "--reasoning", "--out", str(table)]) == 0
    trained = [pair.prompt[0]["content"] for pair in stages.read_realised(task, table, {"test": str(frozen)})]
    items = [(example, one.greedy) for example, one in stages.read_tested(str(frozen), str(samples))]

    def shown() -> list[str]:
        settings = stages.pick_settings("state", typed(config), "towns", "api", "vanilla")
        return [turn["content"] for (turn, *_) in state.judge_prompts(items, settings)]

    read = shown()
    assert read == trained, "it is taught on what it reads"
    assert "Reasoning: Let me think about Rome.\nAnswer: Rome\n\nProposed answer: Rome" in read[1]
    config["datasets"]["towns"]["judge_reads"] = "answer"
    assert main(["surrogate", "--samples", str(samples), "--seed", "1", "--out", str(table)]) == 0
    plain = [pair.prompt[0]["content"] for pair in stages.read_realised(task, table, {"test": str(frozen)})]
    assert plain == shown() and "think" not in plain[1]


def test_what_the_judge_reads_is_in_the_settings_only_where_it_is_asked_for(place):
    config = config_of(place, mode="exact")
    before = stages.pick_settings("state", typed(config), "towns", "weights", "sft")
    config["datasets"]["towns"]["judge_reads"] = "answer"
    assert stages.pick_settings("state", typed(config), "towns", "weights", "sft") == before
    config["datasets"]["towns"]["judge_reads"] = "reasoning"
    after = stages.pick_settings("state", typed(config), "towns", "weights", "sft")
    assert after == msgspec.structs.replace(before, reads="reasoning")
    config["datasets"]["other"] = config["datasets"]["towns"] | {"confidence_from": "towns", "judge_reads": "answer"}
    with pytest.raises(BadInput, match="datasets.other.judge_reads: answer, and the confidence LLMs of towns"):
        configuration.check(config)
