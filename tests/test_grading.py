"""Grading by a model: what it is asked, what its replies count for, which samples mean the same, and what a run makes of it."""

import json
import shutil
from pathlib import Path
from typing import Any

import dry_run
import msgspec
import pytest
import yaml
from conftest import ROOT, cases, own_config, prompts_words, typed
from test_any_data import written
from test_apis import Api, choice

import orce
from orce import stages, tasks
from orce.__main__ import main
from orce.apps.planned import commands
from orce.artefacts import files, store
from orce.artefacts.records import Sample
from orce.config import check as configuration
from orce.config import picking
from orce.errors import BadInput
from orce.given import records as given_records
from orce.given.grading import grade_form
from orce.settings.load import merge
from orce.settings.stage import to_argument, to_mapping
from orce.stages import likelihoods, state

pytestmark = pytest.mark.usefixtures("folder", "direct")

TOWNS = ["Lima", "Rome", "Oslo", "Cairo", "Quito", "Seoul"]
# Samples of an answer to "Which town is number 1?" (Rome). As the task compares, the first and the last are right.
SAID = ["{}", "It is {}.", "It is not {}.", "Atlantis", "{}"]
EXACT, RIGHT = [True, False, False, False, True], [True, True, False, False, True]
CELL, FROZEN = Path("results/towns/api"), "results/towns/prompts/test.jsonl"


class Grader(Api):
    """A grader on a server, which knows the right answer; `says(body) -> text` may say something else."""

    def __init__(self, says=None):
        tell, usage = says or verdict, {"prompt_tokens": 9, "completion_tokens": 1}
        super().__init__(lambda body, _: (200, {"choices": [choice(tell(body))], "usage": usage}))

    def asked(self) -> list[str]:
        return [asked(body) for body in self.bodies]


def asked(body) -> str:
    return body["messages"][-1]["content"]


def after(label: str, text: str) -> str:
    """What follows a label on its line."""
    return text.split(f"{label}: ")[1].split("\n")[0]


def compared(text: str) -> list[str] | None:
    """The two answers that the grader shall compare, if it is asked for that."""
    if "First answer" not in text:
        return None
    return [after(f"{name} answer", text) for name in ("First", "Second")]


def verdict(body) -> str:
    text = asked(body)
    if both := compared(text):
        return "Yes." if meaning(both[0]) == meaning(both[1]) else "No."
    return "yes" if meaning(after("\nAnswer", text)) == after("Accepted answer", text) else "no"


def meaning(answer: str) -> str:
    """Rome for what says that it is Rome, and else the answer itself."""
    name = answer.removeprefix("It is ").removesuffix(".")
    return answer if name.startswith("not ") else name


def record(i: int, **more) -> dict:
    town = TOWNS[i % len(TOWNS)]
    return {
        "qid": f"q{i}",
        "question": f"Which town is number {i}?",
        "reference": town,
        "id": f"q{i}",
        "answers": [said.format(town) for said in SAID],
        "greedy": f"It is {town}." if i % 2 else "Atlantis",
    } | more


def config_of(server="http://127.0.0.1:9/v1", n=6, mode="grader", **grading) -> dict:
    """A configuration of given answers to n questions, graded by a model on a server."""
    written(Path("samples.jsonl"), [record(i) for i in range(n)])
    fields = {"id": "qid", "question": "question", "answer": "reference"}
    source = {"path": "samples.jsonl"}
    spec = {"task": "qa", "source": source, "grading": mode, "fields": fields}
    grader = {"label": "Grader", "source": {"server": server, "model": "j"}}
    models = {
        "api": {"label": "An API", "source": {}, "answers": {"path": "samples.jsonl"}},
        "grader": grader | {"confidence": "weights"},
        "weights": {"label": "Weights", "source": {"path": "weights"}},
    }
    rows = ["consistency", "agreement", "semantic_entropy", "num_sets"]
    return own_config(
        "towns", spec, models, rows, grading={"model": "grader"} | grading,
        answers={"chunk": 4}, evaluation={"bootstrap": 100},
    )  # fmt: skip


def without_references(config: dict, rows: list[dict]) -> dict:
    """The configuration with the samples of some rows and their judgements, and no right answers."""
    del config["datasets"]["towns"]["fields"]["answer"]
    keys = ("id", "answers", "correct")
    written(Path("own.jsonl"), [{key: row[key] for key in keys} for row in rows])
    return merge(config, {"models": {"api": {"answers": {"path": "own.jsonl"}}}})


def step(stage: str, config, *words: str) -> int:
    """The exit code of a stage with the settings that its rule gives it."""
    chosen = picking.with_contents(stages.pick_settings(stage, config, "towns", "api"))
    named = ["--settings", to_argument(chosen), "--prompts", f"test={FROZEN}"]
    return main([stage.replace("_", "-"), *named, *words])


def made(name: str) -> list[str]:
    return ["--out", f"{CELL}/{name}.jsonl", "--manifest", f"{CELL}/{name}.manifest.json"]


def imported(config: dict):
    """The configuration as it is checked, whose questions and given answers are in their files."""
    checked = configuration.check(config)
    asked = picking.with_contents(stages.pick_settings("prompts", checked, "towns"))
    assert main(prompts_words(asked, FROZEN)) == 0
    assert step("import_answers", checked, *made("ungraded-samples")) == 0
    return checked


def grade(config) -> int:
    """The exit code of grading answers that are imported."""
    names = ["verdicts", "disagreements"]
    names += ["meanings"] if picking.groups_meanings(config) else []
    paths = [word for name in names for word in (f"--{name}", f"{CELL}/{name}.jsonl")]
    ungraded = ["--samples", f"{CELL}/ungraded-samples.jsonl"]
    return step("grade", config, *ungraded, *paths, *made("samples"))


def graded(config: dict) -> tuple[list[dict], dict]:
    """(records, the manifest's `grading`) after the grade step."""
    assert grade(imported(config)) == 0
    path = CELL / "samples.jsonl"
    return store.read(path), store.manifest_facts(path)["grading"]


def lines(name: str) -> list[dict]:
    return files.read_jsonl(CELL / f"{name}.jsonl")


@pytest.mark.parametrize(("words", "reply", "read"), cases("verdicts"))
def test_a_reply_is_one_of_the_two_words_of_the_template_or_unread(words, reply, read):
    shown = '{{ question }} {{ references | join("|") }} {{ answer }}'
    Path("mine.j2").write_text(f"{{% set right, wrong = {words} %}}\n{shown}")
    form = grade_form("mine.j2")
    turns = form.messages(question="Where?", references=["Rome", "Roma"], answer="{{ 7 * 7 }}")
    assert turns == [{"role": "user", "content": "Where? Rome|Roma {{ 7 * 7 }}"}]
    assert form.verdict(reply) is read


@pytest.mark.parametrize(("text", "line"), cases("wrong_templates"))
def test_a_template_that_cannot_ask_is_refused_before_the_run(text, line):
    Path("mine.j2").write_text(text)
    Path("weights").mkdir()
    config = config_of(prompt="mine.j2")
    configuration.check(config)
    with pytest.raises(BadInput, match=line) as raised:
        configuration.data(typed(config))
    assert "mine.j2" in str(raised.value) and "\n" not in str(raised.value)
    assert not [*Path().rglob("pwned")]


def test_the_grader_reads_sentences_and_where_it_says_nothing_the_exact_grade_stands(capfd):
    """Where it differs is listed. Of the town alone, which is right, it says neither word."""

    def says(body) -> str:
        return "Well, that depends." if after("\nAnswer", asked(body)) in TOWNS else verdict(body)

    with Grader(says) as grader:
        records, counts = graded(config_of(grader.address))
    assert [one["correct"] for one in records] == [RIGHT] * 6
    assert [one["greedy"]["correct"] for one in records] == [i % 2 == 1 for i in range(6)]
    exact = lines("ungraded-samples")
    assert [one["correct"] for one in exact] == [EXACT] * 6
    assert [one.keys() | {"graded"} for one in exact] == [one.keys() for one in records]
    assert len(grader.bodies) == len({*grader.asked()}) == 24, "once about each distinct answer"
    assert all(body["temperature"] == 0 for body in grader.bodies)
    unread = [one["raw"] for one in lines("verdicts") if one["right"] is None]
    assert unread == ["Well, that depends."] * 6
    listed = lines("disagreements")
    keys = ("id", "answer", "exact", "right", "references", "raw", "texts")
    for i, town in enumerate(TOWNS):
        expected = [f"q{i}", f"It is {town}", False, True, [town], "yes", 1 + i % 2]
        assert [listed[i][key] for key in keys] == expected
    differing = {"only_grader": 9, "only_exact": 0, "disagreements": 6}
    assert counts == {"asked": 24, "unread": 6} | differing
    said = capfd.readouterr().err
    assert "the grader alone says right of 9" in said
    assert "6 replies could not be read: the exact grade counts there" in said


def test_labels_that_came_with_the_answers_are_the_exact_grades():
    """Published outputs, graded by somebody's model: the wrong labels are found."""
    with Grader() as grader:
        config = config_of(grader.address)
        labels = [True, True, True, False, True]
        written(Path("samples.jsonl"), [record(i, correct=labels) for i in range(6)])
        records, counts = graded(config)
    assert [one["correct"] for one in records] == [RIGHT] * 6
    assert (counts["only_exact"], counts["disagreements"]) == (6, 6)


def test_a_question_without_a_reference_cannot_be_graded(capfd):
    rows = [record(i, correct=[True] * 5) for i in range(3)]
    assert grade(imported(without_references(config_of(n=3), rows))) == 2
    assert "'q0' has no reference" in capfd.readouterr().err


def test_a_grader_that_only_groups_needs_no_reference_and_asks_about_none():
    labels = [True, False, True, False, True]
    rows = [record(i, correct=labels) for i in range(3)]
    with Grader() as grader:
        config = config_of(grader.address, n=3, group="grader", grades=False)
        records, counts = graded(without_references(config, rows))
    assert all(compared(text) for text in grader.asked())
    assert [one["meanings"] for one in records] == [[0, 0, 1, 2, 0]] * 3
    assert [one["correct"] for one in records] == [labels] * 3 and counts == {"disagreements": 0}


def test_a_grader_that_stops_goes_on_after_its_last_chunk_and_ends_with_the_same_bytes(monkeypatch):
    speed = {"answers": {"chunk": 8, "concurrency": 2, "max_retries": 0}}
    monkeypatch.setenv("ORCE_SPEED", json.dumps(speed))
    results = [CELL / f"{name}.jsonl" for name in ("samples", "verdicts", "disagreements", "meanings")]

    with Grader() as grader:
        config = imported(config_of(grader.address, group="grader"))
        ready = grader.reply

        def stopping(body, headers):
            return ready(body, headers) if len(grader.bodies) <= 20 else (400, {})

        grader.reply = stopping
        assert grade(config) == 2 and not results[0].exists()
        finished = {*grader.asked()[:16]}  # two chunks
        grader.bodies.clear()
        grader.reply = ready
        assert grade(config) == 0 and not finished & {*grader.asked()}
        resumed = [path.read_bytes() for path in results]
        for path in results:
            path.unlink()
        shutil.rmtree(CELL / ".partial")
        assert grade(config) == 0 and finished < {*grader.asked()}
    assert [path.read_bytes() for path in results] == resumed


def test_samples_of_one_meaning_are_one_answer_and_one_idea():
    task = tasks.get("qa")
    example = {"id": "q1", "question": "?", "reference": ["Rome"], "context": None, "choices": None}
    greedy = {"answer": "It is Rome", "raw": "", "correct": True, "f1": None, "meaning": 0}
    of_text = {"id": "q1", "split": "test", "raw": [""] * 5, "correct": RIGHT, "graded": True}
    of_text |= {"greedy": greedy}
    of_text["answers"] = ["Rome", "It is Rome", "It is not Rome", "Atlantis", "Rome"]

    def ideas(**more) -> tuple[Sample, str]:
        one = msgspec.convert(of_text | more, Sample)
        return one, likelihoods.p_true_prompt(task, example, one)[0]["content"]

    grouped, shown = ideas(meanings=[0, 0, 1, 2, 0])
    assert given_records.score_answer(grouped, "It is Rome", example, task).correct
    assert "It is Rome" not in shown.split("Possible")[0]
    assert "Rome\nIt is not Rome\nAtlantis" in shown
    assert "Rome\nIt is Rome\nIt is not Rome" in ideas()[1]


def unread(body) -> str:
    return "Hm." if compared(asked(body)) else verdict(body)


def one_way(body) -> str:
    """A town is what says that it is the town, and not the other way; Atlantis is each but the denial."""
    both = compared(asked(body))
    if not both:
        return verdict(body)
    one, other = (answer.rstrip(".") for answer in both)
    if "Atlantis" in (one, other):
        return "No." if "not" in one + other else "Yes."
    return "Yes." if one in TOWNS and other == f"It is {one}" else "No."


@pytest.mark.parametrize(("says", "groups", "of_greedy", "said"), [
    (unread, [0, 1, 2, 3, 0], [3, 1], "36 comparisons of answers could not be read"),
    (one_way, [0, 1, 2, 0, 0], [0, 1], ""),
])  # fmt: skip
def test_answers_that_do_not_agree_in_both_orders_differ_and_one_joins_the_first_group_that_agrees(
    says, groups, of_greedy, said, capfd
):
    with Grader(says) as grader:
        records, _ = graded(config_of(grader.address, group="grader"))
    assert [one["meanings"] for one in records] == [groups] * 6
    assert [one["greedy"]["meaning"] for one in records] == of_greedy * 3
    heard = capfd.readouterr().err
    assert said in heard if said else "could not be read" not in heard


@pytest.fixture(scope="module")
def nli(tiny, tmp_path_factory) -> str:
    """Folder of a tiny NLI model, with random weights."""
    import torch
    from transformers import AutoTokenizer
    from transformers.models.bert.configuration_bert import BertConfig
    from transformers.models.bert.modeling_bert import BertForSequenceClassification

    folder, tokenizer = tmp_path_factory.mktemp("nli"), AutoTokenizer.from_pretrained(tiny)
    torch.manual_seed(3)
    size: Any = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    size |= {"vocab_size": len(tokenizer), "max_position_embeddings": 128}
    names = {0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"}
    config = BertConfig(id2label=names, pad_token_id=tokenizer.pad_token_id, **size)
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def biased(folder: str, towards_entailment: float) -> str:
    import torch
    from transformers.models.auto.modeling_auto import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        model.classifier.bias[2] = towards_entailment
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(("bias", "groups"), [(50.0, [0, 0, 0, 0, 0]), (-50.0, [0, 1, 2, 3, 0])])
def test_an_nli_model_that_is_named_by_its_folder_groups_the_samples(nli, bias, groups):
    spec: dict[str, Any] = {"n": 3, "group": "nli", "nli": {"path": biased(nli, bias)}}
    with Grader() as grader:
        records, _ = graded(config_of(grader.address, **spec))
    assert len(grader.bodies) == 12, "the grader grades, the NLI model groups"
    assert [one["meanings"] for one in records] == [groups] * 3
    first = lines("meanings")[0]
    assert {len(pair["raw"]) for pair in first["compared"]} == {2} and "spent" not in first


@pytest.mark.slow
@pytest.mark.parametrize(("bias", "agreement"), [(50.0, 1.0), (-50.0, 1 / 3)])
def test_the_door_takes_an_nli_model_to_group_by(nli, bias, agreement):
    replies = ["It is Rome.", "The eternal city.", "The capital of Italy."]
    asked = {"question": "Which town?", "reference": "Rome", "answers": replies, "equality": "contains"}
    table = orce.confidence(None, [asked], ["agreement"], group_by=biased(nli, bias), device="cpu")
    assert table.correct("agreement") == [True]
    assert table.confidence("agreement") == [agreement]


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


@pytest.mark.parametrize(("line", "over"), cases("wrong_graders"))
def test_a_grader_that_is_not_there_is_said_at_once(line, over):
    with pytest.raises(BadInput, match=line):
        configuration.check(merge(config_of(), over))


def planned(config, *targets) -> list:
    """The commands that Snakemake plans."""
    Path("weights").mkdir(exist_ok=True)
    Path("config.yaml").write_text(yaml.safe_dump(config))
    words = ("--snakefile", ROOT / "Snakefile", "--cores", "1", "-p")
    code, said = dry_run.snakemake(Path(), *words, *targets)
    assert code == 0, said
    return commands(said)


def test_the_rule_stands_only_where_a_dataset_is_graded():
    config = config_of(mode="exact")
    stages = {job.stage for job in planned(config)}
    assert "import-answers" in stages and "grade" not in stages
    config["datasets"]["cities"] = config["datasets"]["towns"] | {"grading": "grader"}
    config["tables"]["cities"] = config["tables"]["towns"] | {"dataset": "cities"}
    both = [f"results/{dataset}/api/samples.jsonl" for dataset in ("towns", "cities")]
    made_by = {job.out: job.stage for job in planned(config, *both)}
    assert [made_by[path] for path in both] == ["import-answers", "grade"]


@pytest.mark.parametrize("shards", [1, 2])
def test_graded_samples_are_made_by_the_grader_alone(shards):
    config = config_of()
    config["answers"] |= {"shards": shards, "samples": 4}
    of_weights = "sample" if shards == 1 else "gather"
    for model, ungraded in (("api", "import-answers"), ("weights", of_weights)):
        cell = f"results/towns/{model}"
        made_by = {job.out: job.stage for job in planned(config, f"{cell}/samples.jsonl")}
        assert made_by[f"{cell}/samples.jsonl"] == "grade"
        assert made_by[f"{cell}/ungraded-samples.jsonl"] == ungraded


def test_the_confidences_of_a_run_are_of_graded_answers_and_of_their_meanings():
    Path("weights").mkdir()
    rows = {"consistency": 0.6, "agreement": 0.6, "num_sets": 0.5, "semantic_entropy": 0.41}
    with Grader() as grader:
        config = config_of(grader.address, group="grader")
        made = [f"{CELL}/{row}/confidences.jsonl" for row in rows]
        dry_run.make(Path(), config, *made, f"{CELL}/surrogate.csv")
    for row, confidence in rows.items():
        stated = files.read_jsonl(CELL / row / "confidences.jsonl")
        assert round(stated[1]["confidence"], 3) == confidence
        assert [one["correct"] for one in stated] == [row == "consistency" or i % 2 == 1 for i in range(6)]
    samples = lines("samples")
    assert [one["meanings"] for one in samples] == [[0, 0, 1, 2, 0]] * 6
    assert [one["greedy"]["meaning"] for one in samples] == [0 if i % 2 else 2 for i in range(6)]
    kappas = [line.split(",")[4] for line in (CELL / "surrogate.csv").read_text().splitlines()[1:]]
    assert kappas == ["0.6"] * 6


@pytest.mark.parametrize(("reads", "flags", "shown"), [
    ("reasoning", ["--reasoning"], "Reasoning: Let me think about Rome.\nAnswer: Rome\n\nProposed answer: Rome"),
    ("answer", [], "Proposed answer: Rome"),
])  # fmt: skip
def test_the_confidence_llm_is_taught_on_what_it_reads(reads, flags, shown):
    """The reasoning only where the data set asks for it."""
    config = config_of(mode="exact")
    config["datasets"]["towns"]["judge_reads"] = reads
    replies = [f"Let me think about {town}.\nAnswer: {town}" for town in TOWNS]
    rows = [record(i, answers=[reply, "I cannot say."], greedy=reply) for i, reply in enumerate(replies)]
    written(Path("samples.jsonl"), rows)
    checked = imported(config)
    samples, task = str(CELL / "ungraded-samples.jsonl"), tasks.get("qa")
    assert main(["surrogate", "--samples", samples, "--seed", "1", *flags, "--out", "surrogate.csv"]) == 0
    taught = stages.read_realised(task, Path("surrogate.csv"), {"test": FROZEN})
    items = [(example, one.greedy) for example, one in stages.read_tested(FROZEN, samples)]
    settings = stages.pick_settings("state", checked, "towns", "api", "vanilla")
    read = [turn["content"] for (turn, *_) in state.judge_prompts(items, settings)]
    assert read == [pair.prompt[0]["content"] for pair in taught]
    assert shown in read[1] and ("think" in read[1]) == (reads == "reasoning")
    assert ("reads" in to_mapping(settings)) == (reads == "reasoning"), "the default is in no seal"
