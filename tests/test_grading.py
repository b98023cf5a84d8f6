"""Grading by a model: what it is asked, what its replies count for, which samples mean the same, and what a run makes of it."""

import shutil
from pathlib import Path
from typing import Any

import dry_run
import msgspec
import pytest
import yaml
from conftest import ROOT, cases, own_config, typed
from test_any_data import written
from test_apis import Api, choice

from orce import stages, tasks
from orce.apps.planned import commands
from orce.artefacts import files, store
from orce.artefacts.records import Sample
from orce.config import check as configuration
from orce.errors import BadInput
from orce.given import records as given_records
from orce.given.grading import grade_form
from orce.llm.engines import openai
from orce.settings.load import merge
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
    asked = {"qid": f"q{i}", "question": f"Which town is number {i}?", "reference": town, "id": f"q{i}"}
    answers = [said.format(town) for said in SAID]
    return asked | {"answers": answers, "greedy": f"It is {town}." if i % 2 else "Atlantis"} | more


def config_of(server="http://127.0.0.1:9/v1", n=6, mode="grader", **grading) -> dict:
    """A configuration of given answers to n questions, graded by a model on a server."""
    written(Path("samples.jsonl"), [record(i) for i in range(n)])
    Path("weights").mkdir(exist_ok=True)
    fields = {"id": "qid", "question": "question", "answer": "reference"}
    spec = {"task": "qa", "source": {"path": "samples.jsonl"}, "grading": mode, "fields": fields}
    models = {
        "api": {"label": "An API", "source": {}, "answers": {"path": "samples.jsonl"}},
        "grader": {"label": "Grader", "source": {"server": server, "model": "j"}, "confidence": "weights"},
        "weights": {"label": "Weights", "source": {"path": "weights"}},
    }
    rows = ["consistency", "agreement", "semantic_entropy", "num_sets"]
    return own_config(
        "towns", spec, models, rows, grading={"model": "grader"} | grading,
        answers={"chunk": 4}, evaluation={"bootstrap": 100},
    )  # fmt: skip


def graded(config: dict) -> tuple[list[dict], dict]:
    """(records, the manifest's `grading`) of the data set, as a run makes them."""
    dry_run.make(Path(), config, f"{CELL}/samples.jsonl")
    return lines("samples"), store.manifest_facts(CELL / "samples.jsonl")["grading"]


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
    config = config_of(prompt="mine.j2")
    configuration.check(config)
    with pytest.raises(BadInput, match=line) as raised:
        configuration.data(typed(config))
    assert "mine.j2" in str(raised.value) and "\n" not in str(raised.value)
    assert not [*Path().rglob("pwned")]


def test_the_grader_reads_sentences_and_where_it_says_nothing_the_label_or_exact_grade_stands(capfd):
    """Where it differs is listed, such as wrong labels. Of the town alone, which is right, it says neither word."""

    def says(body) -> str:
        return "Well, that depends." if after("\nAnswer", asked(body)) in TOWNS else verdict(body)

    labels = [True, False, True, False, True]
    with Grader(says) as grader:
        config = config_of(grader.address)
        written(Path("samples.jsonl"), [record(i, correct=labels) for i in range(6)])
        records, counts = graded(config)
    assert [one["correct"] for one in records] == [RIGHT] * 6
    assert [one["greedy"]["correct"] for one in records] == [i % 2 == 1 for i in range(6)]
    exact = lines("ungraded-samples")
    assert [one["correct"] for one in exact] == [labels] * 6
    assert [one.keys() | {"graded"} for one in exact] == [one.keys() for one in records]
    assert len(grader.bodies) == len({*grader.asked()}) == 24, "once about each distinct answer"
    assert all(body["temperature"] == 0 for body in grader.bodies)
    unread = [one["raw"] for one in lines("verdicts") if one["right"] is None]
    assert unread == ["Well, that depends."] * 6
    listed = lines("disagreements")
    for i, town in enumerate(TOWNS):
        wrong = {"id": f"q{i}", "answer": f"It is {town}", "exact": False, "right": True, "references": [town]}
        assert any(one == one | wrong | {"raw": "yes", "texts": 1 + i % 2} for one in listed)
        wrong = {"id": f"q{i}", "answer": f"It is not {town}", "exact": True, "right": False, "raw": "no", "texts": 1}
        assert any(one == one | wrong for one in listed)
    assert counts == {"asked": 24, "unread": 6, "only_grader": 9, "only_exact": 6, "disagreements": len(listed)}
    said = capfd.readouterr().err
    assert "the grader alone says right of 9" in said
    assert "6 replies could not be read: the exact grade counts there" in said


def test_a_question_without_a_reference_is_not_graded_and_may_be_grouped(capfd, monkeypatch):
    sized: list[Any] = []
    monkeypatch.setattr(openai, "longest", lambda _, prompts, most: sized.extend(prompts), raising=False)
    with Grader() as grader:
        config = config_of(grader.address, n=3)
        del config["datasets"]["towns"]["fields"]["answer"]
        rows = [{"id": f"q{i}", "answers": record(i)["answers"], "correct": EXACT} for i in range(3)]
        written(Path("own.jsonl"), rows)
        config["models"]["api"]["answers"] = {"path": "own.jsonl"}
        with pytest.raises(AssertionError, match="stage='grade'"):
            graded(config)
        assert "'q0' has no reference" in capfd.readouterr().err
        config["grading"] |= {"group": "grader", "grades": False}
        records, counts = graded(config)
    assert all(compared(text) for text in grader.asked())
    assert max(map(len, grader.asked())) <= max(len(turns[-1]["content"]) for turns in sized), "each has room"
    assert [one["meanings"] for one in records] == [[0, 0, 1, 2, 0]] * 3
    assert [one["correct"] for one in records] == [EXACT] * 3 and counts == {"disagreements": 0}


def test_a_grader_that_stops_goes_on_after_its_last_chunk_and_ends_with_the_same_bytes():
    results = [CELL / f"{name}.jsonl" for name in ("samples", "verdicts", "disagreements", "meanings")]

    with Grader() as grader:
        config = config_of(grader.address, group="grader")
        config["answers"]["chunk"], config["engine"] = 8, config["engine"] | {"concurrency": 2, "max_retries": 0}
        ready = grader.reply

        def stopping(body, headers):
            return ready(body, headers) if len(grader.bodies) <= 20 else (400, {})

        grader.reply = stopping
        with pytest.raises(AssertionError, match="stage='grade'"):
            graded(config)
        assert not results[0].exists()
        finished = {*grader.asked()[:16]}  # two chunks
        grader.bodies.clear()
        grader.reply = ready
        graded(config)
        assert not finished & {*grader.asked()}
        resumed = [path.read_bytes() for path in results]
        for path in results:
            path.unlink()
        shutil.rmtree(CELL / ".partial")
        graded(config)
        assert finished < {*grader.asked()}
    assert [path.read_bytes() for path in results] == resumed


def test_samples_of_one_meaning_are_one_answer_and_one_idea():
    task = tasks.get("qa")
    example = {"id": "q1", "question": "?", "reference": ["Rome"], "context": None, "choices": None}
    answers = ["Rome", "It is Rome", "It is not Rome", "Atlantis", "Rome"]
    greedy = {"answer": "It is Rome", "raw": "", "correct": True, "f1": None, "meaning": 0}
    of_text = {"id": "q1", "split": "test", "raw": [""] * 5, "answers": answers, "correct": RIGHT, "graded": True}
    of_text |= {"greedy": greedy}
    plain, grouped = (msgspec.convert(of_text | more, Sample) for more in ({}, {"meanings": [0, 0, 1, 2, 0]}))
    assert given_records.score_answer(grouped, "It is Rome", example, task).correct
    shown, each = (likelihoods.p_true_prompt(task, example, one)[0]["content"] for one in (grouped, plain))
    assert "It is Rome" not in shown.split("Possible")[0] and "Rome\nIt is not Rome\nAtlantis" in shown
    assert "Rome\nIt is Rome\nIt is not Rome" in each


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
def test_answers_agree_in_both_orders_or_differ_and_join_the_first_group(says, groups, of_greedy, said, capfd):
    with Grader(says) as grader:
        records, _ = graded(config_of(grader.address, group="grader"))
    assert [one["meanings"] for one in records] == [groups] * 6
    assert [one["greedy"]["meaning"] for one in records] == of_greedy * 3
    heard = capfd.readouterr().err
    assert said in heard if said else "could not be read" not in heard


def nli_model(tiny: str, towards_entailment: float = 0.0) -> str:
    """Folder of a tiny NLI model with random weights and a bias."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    tokenizer = AutoTokenizer.from_pretrained(tiny)
    torch.manual_seed(3)
    size: Any = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    size |= {"vocab_size": len(tokenizer), "max_position_embeddings": 128}
    names = {0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"}
    model = BertForSequenceClassification(BertConfig(id2label=names, pad_token_id=tokenizer.pad_token_id, **size))
    with torch.no_grad():
        model.classifier.bias[2] = towards_entailment
    for part in (model, tokenizer):
        part.save_pretrained("nli")
    return "nli"


@pytest.mark.parametrize(("bias", "groups"), [(50.0, [0, 0, 0, 0, 0]), (-50.0, [0, 1, 2, 3, 0])])
def test_an_nli_model_that_is_named_by_its_folder_groups_the_samples(tiny, bias, groups):
    spec: dict[str, Any] = {"n": 3, "group": "nli", "nli": {"path": nli_model(tiny, bias)}}
    with Grader() as grader:
        records, _ = graded(config_of(grader.address, **spec))
    assert len(grader.bodies) == 12, "the grader grades, the NLI model groups"
    assert [one["meanings"] for one in records] == [groups] * 3
    first = lines("meanings")[0]
    assert {len(pair["raw"]) for pair in first["compared"]} == {2} and "spent" not in first


@pytest.mark.slow
def test_an_nli_models_labels_do_not_depend_on_the_batch_and_one_without_entailment_is_refused(tiny):
    from transformers import AutoConfig, AutoModelForSequenceClassification

    from orce.llm import reading
    from orce.settings.stage import Encoder, Source

    folder = nli_model(tiny)
    options = Encoder(source=Source(path=folder), dtype="float32", device="cpu")
    pairs = [("a b c", "a"), ("x", "y z " * 9), ("Lima", "Lima"), ("q", "r")]
    assert reading.Nli(options, 4096).labels(pairs) == reading.Nli(options, 1).labels(pairs)
    config = AutoConfig.from_pretrained(folder, num_labels=2)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    with pytest.raises(BadInput, match="its labels are label_0, label_1; an NLI model has a label `entailment`"):
        reading.Nli(options, 4096)


@pytest.mark.parametrize(("line", "over"), cases("wrong_graders"))
def test_a_grader_that_is_not_there_is_said_at_once(line, over):
    with pytest.raises(BadInput, match=line):
        configuration.check(merge(config_of(), over))


@pytest.mark.parametrize(("shards", "of_weights"), [(1, "sample"), (2, "gather")])
def test_samples_are_the_graders_where_a_dataset_is_graded_alone(shards, of_weights):
    config = config_of()
    config["answers"] |= {"shards": shards, "samples": 4}
    config["datasets"]["exact"] = config["datasets"]["towns"] | {"grading": "exact"}
    config["tables"]["exact"] = config["tables"]["towns"] | {"dataset": "exact"}
    expected = {}
    for model, made_by in (("api", "import-answers"), ("weights", of_weights)):
        expected[f"results/exact/{model}/samples.jsonl"] = made_by
        expected[f"results/towns/{model}/ungraded-samples.jsonl"] = made_by
        expected[f"results/towns/{model}/samples.jsonl"] = "grade"
    Path("config.yaml").write_text(yaml.safe_dump(config))
    code, said = dry_run.snakemake(Path(), "--snakefile", ROOT / "Snakefile", "--cores", "1", "-p", *expected)
    assert code == 0, said
    assert expected.items() <= {job.out: job.stage for job in commands(said)}.items()


def test_the_confidences_of_a_run_are_of_graded_answers_and_of_their_meanings():
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


@pytest.mark.parametrize(("reads", "shown"), [
    ("reasoning", "Reasoning: Let me think about Rome.\nAnswer: Rome\n\nProposed answer: Rome"),
    ("answer", "Proposed answer: Rome"),
])  # fmt: skip
def test_the_confidence_llm_is_taught_on_what_it_reads(reads, shown):
    """The reasoning only where the data set asks for it."""
    config = config_of(mode="exact")
    config["datasets"]["towns"]["judge_reads"] = reads
    replies = [f"Let me think about {town}.\nAnswer: {town}" for town in TOWNS]
    rows = [record(i, answers=[reply, "I cannot say."], greedy=reply) for i, reply in enumerate(replies)]
    written(Path("samples.jsonl"), rows)
    dry_run.make(Path(), config, f"{CELL}/surrogate.csv")
    taught = stages.read_realised(tasks.get("qa"), CELL / "surrogate.csv", {"test": FROZEN})
    items = [(example, one.greedy) for example, one in stages.read_tested(FROZEN, str(CELL / "samples.jsonl"))]
    settings = stages.pick_settings("state", configuration.check(config), "towns", "api", "vanilla")
    read = [turn["content"] for (turn, *_) in state.judge_prompts(items, settings)]
    assert read == [pair.prompt[0]["content"] for pair in taught]
    assert shown in read[1] and ("think" in read[1]) == (reads == "reasoning")
