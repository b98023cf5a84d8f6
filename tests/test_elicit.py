"""Top-k and CoT: worked examples, a greedy second question for the confidence alone, and what is kept of both texts."""

import json

import pytest
from conftest import ARITHMETIC, ROOT, WORLDFACTS, typed
from msgspec import structs
from msgspec.structs import replace

from orce import methods, stages, tasks
from orce.__main__ import main
from orce.artefacts import files, store
from orce.config import load
from orce.config.check import check
from orce.errors import BadInput
from orce.llm import engines
from orce.records import Confidence
from orce.stage_settings import Model, Source, to_argument
from orce.stages import elicit

NO_MODEL = Model(source=Source(), dtype="float32", device="cpu")


FACTS = tasks.get(WORLDFACTS)
EXAMPLES = FACTS.load({"size": 4}, "validation")


def answered(examples, engine, options):
    return elicit.records([(example, None) for example in examples], engine, elicit.Way(options), options)


def options(method, task=WORLDFACTS, **changed):
    chosen = methods.Registry({}).settings(method) | {"shots": None} | changed
    named = {"method": method, "module": method, "label": method}
    return elicit.Settings(options=chosen, task=task, seed=1, engine="none", model=NO_MODEL, **named)


class Says:
    """An engine whose LLM says what a test needs it to say; keeps what it was asked."""

    def __init__(self, *rounds):
        self.rounds, self.asked = list(rounds), []

    def generate(self, prompts, n, temperature, max_tokens, seeds, top_p=1.0):
        self.asked.append({"prompts": prompts, "temperature": temperature, "max_tokens": max_tokens})
        return [[text] for text in self.rounds.pop(0)]


def test_the_second_question_is_greedy_for_the_confidence_alone_and_only_where_none_is_read():
    engine = Says(["Explanation: It is so.\nAnswer: Niger\nConfidence: 80%"])
    (record,) = answered(EXAMPLES[:1], engine, options("cot"))
    assert (record.answer, record.confidence, record.retried) == ("Niger", 0.8, False)
    assert isinstance(record.raw, str) and len(engine.asked) == 1
    first = ["Explanation: It is so.\nAnswer: Niger", "Answer: Chad\nConfidence: 30%", "Answer: Mali\nConfidence: 250%"]
    engine = Says(first, ["Confidence: 65", "Answer: Chad\nConfidence: none"])
    records = answered(EXAMPLES[:3], engine, options("cot"))
    assert [call["temperature"] for call in engine.asked] == [0.0, 0.0]
    assert [record.confidence for record in records] == [0.65, 0.3, None]
    assert [record.retried for record in records] == [True, False, True]
    assert records[0].raw == [first[0], "Confidence: 65"]
    for asked, text, again in zip((0, 2), (first[0], first[2]), engine.asked[1]["prompts"], strict=True):
        assert again[-2] == {"role": "assistant", "content": text}, "the conversation goes on"
        assert again[-3] == engine.asked[0]["prompts"][asked][-1]
        assert again[-1]["role"] == "user" and "this answer" in again[-1]["content"]


@pytest.mark.parametrize("method, text", [("cot", "Answer: Niger"), ("topk", "G1: Niger\nG2: Chad\nP2: 10%")])
def test_the_answer_stays_that_of_the_first_text(method, text):
    # What the second reply says of another answer belongs to that one; only its confidence is asked for and taken.
    engine = Says([text], ["Answer: Chad\nG1: Chad\nConfidence: 90"])
    (record,) = answered(EXAMPLES[:1], engine, options(method))
    assert (record.answer, record.confidence) == ("Niger", 0.9)
    silent = Says(["I do not know that at all, sorry. Ask me another thing."], ["Answer: Niger. Confidence: 90"])
    (record,) = answered(EXAMPLES[:1], silent, options("topk"))
    assert record.answer is None and not record.correct, "an unreadable answer is wrong, whatever is said later"


@pytest.mark.parametrize("name", [ARITHMETIC, WORLDFACTS])
@pytest.mark.parametrize("method", ["cot", "topk"])
def test_worked_examples_read_as_what_they_say(method, name):
    module, task = methods.load(method), tasks.get(name)
    example, chosen = task.load({"size": 1}, "test")[0], {"k": 2}
    *turns, last = module.prompt(example, task, chosen)
    assert last == {"role": "user", "content": f"Question: {example['question']}"}
    assert [turn["role"] for turn in turns] == ["user", "assistant"] * 4
    read = [module.read(turn["content"], {"kind": ""} | example, task, chosen) for turn in turns[1::2]]
    assert [confidence for _, confidence in read] == [0.9, 0.6, 1.0, 0.4]
    assert [answer for answer, _ in read] == [answer for _, _, answer in task.worked()]
    again = elicit.Way(options(method, name, k=2, max_tokens=8)).again([*turns, last], "TEXT", example)
    stated = [turn["content"] for turn in again if turn["content"].startswith("Confidence: ")]
    assert stated == ["Confidence: 90", "Confidence: 60", "Confidence: 100", "Confidence: 40"]


@pytest.mark.parametrize("method", ["cot", "topk"])
def test_without_worked_examples_the_question_stands_in_the_instruction(method):
    given = {"all": {}, "none": {"shots": 0}}
    models = {name: {"label": name, "source": {"path": "m"}} | more for name, more in given.items()}
    config = typed(load.mapping(ROOT / "config.yaml") | {"models": models})
    shots = {name: stages.of("elicit", config, "mmlu", name, method).options["shots"] for name in models}
    assert shots == {"all": None, "none": 0}
    module, example = methods.load(method), {"question": "Wet?", "context": None, "choices": ["yes", "no"]}
    (turn,) = module.prompt(example, tasks.get("mmlu"), {"k": 4, "shots": None})
    assert turn["content"].endswith("Question: Wet?\nA. yes\nB. no")
    (turn,) = module.prompt(EXAMPLES[0], FACTS, {"k": 4, "shots": 0})
    assert turn["content"].endswith(f"Question: {EXAMPLES[0]['question']}")


OWN = """
LABEL, KIND = "Mine", "prompted"
def prompt(example, task, settings): return [{"role": "user", "content": task.question(example)}]
def read(text, example, task, settings): return task.extract(text, example), None
"""


def test_a_method_without_a_token_budget_is_refused_before_the_first_job(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    config = load.mapping(ROOT / "config.yaml")
    config["methods"]["mine"] = str(tmp_path / "mine.py")
    with pytest.raises(BadInput, match=r"^config: methods\.mine\.max_tokens: missing; say how many tokens [^\n]*$"):
        check(config)
    (tmp_path / "with.py").write_text(OWN + 'SETTINGS = {"max_tokens": 20}')
    config["methods"]["mine"] = str(tmp_path / "with.py")
    check(config)


def test_a_method_of_ones_own_gets_the_second_question_too(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    engine = Says(["Niamey is in Niger."], ["Confidence: 70"])
    chosen = replace(options("cot"), method="mine", module=str(tmp_path / "mine.py"), options={"max_tokens": 20})
    (record,) = answered(EXAMPLES[:1], engine, chosen)
    assert record.confidence == 0.7 and len(engine.asked[1]["prompts"][0]) == 3


@pytest.mark.slow
def test_every_item_is_kept_and_smollm2_states_a_confidence_on_both_demo_tasks(
    tmp_path, monkeypatch, model_settings, smollm2
):
    monkeypatch.chdir(tmp_path)
    files.write_jsonl("test.jsonl", EXAMPLES)
    chosen = structs.replace(options("cot", max_tokens=6), model=model_settings, engine="transformers")
    monkeypatch.setenv("ORCE_SPEED", json.dumps({"answers": {"chunk": 2, "batch_tokens": 300}}))
    words = ["--prompts", "test.jsonl", "--shard", "0/1", "--out", "out.jsonl"]
    assert main(["elicit", "--settings", to_argument(chosen), *words]) == 0
    records = store.records("out.jsonl", Confidence)
    assert [record.id for record in records] == [example["id"] for example in EXAMPLES]
    unread = [record for record in records if record.confidence is None]
    assert unread and all(record.retried and len(record.raw) == 2 for record in unread)
    loaded = {"source": {"path": smollm2}, "dtype": "float32", "device": "cpu", "batch_tokens": 2048}
    engine = engines.get("transformers").load(loaded)
    for task in (ARITHMETIC, WORLDFACTS):
        examples = tasks.get(task).load({"size": 4}, "validation")
        for method, chosen in (("cot", {}), ("topk", {"k": 2})):
            records = answered(examples, engine, options(method, task, max_tokens=48, **chosen))
            assert all(record.confidence is not None for record in records), (task, method, records)
