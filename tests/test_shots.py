"""Worked examples in task qa: taken from the data, shown before every question, and never asked."""

import json

import pytest
from conftest import ARITHMETIC, ROOT
from test_any_data import shipped, written

from orce import stages, tasks
from orce.__main__ import main
from orce.config import settings
from orce.config.check import read_config
from orce.errors import BadInput

QA = tasks.get("qa")
ROWS = [{"context": f"The capital of land {i} is", "continuation": f"City {i}"} for i in range(40)]


def chosen(**changes):
    config = shipped("qa-wikidata")
    for key, value in changes.items():
        setattr(config.datasets["qa-wikidata"], key, value)
    return config


def frozen(config, split, folder, rows=ROWS):
    """Exit code of the prompts step, and what it wrote."""
    written(folder / "test.jsonl", rows)
    options = stages.of("prompts", config, "qa-wikidata")
    options.source["path"] = str(folder)
    out = folder / f"{split}-prompts.jsonl"
    given = ["--split", split, "--out", str(out), "--manifest", str(folder / "m.json")]
    code = main(["prompts", "--settings", settings.to_argument(options), *given])
    return code, [json.loads(line) for line in out.read_text().splitlines()] if code == 0 else []


SPLITS = {
    "shots": {"from": "test", "size": 3},
    "sft": {"from": "test", "size": 10},
    "test": {"from": "test", "size": 20},
}


def test_worked_examples_are_turns_before_the_question(tmp_path):
    _, examples = frozen(chosen(splits=SPLITS), "test", tmp_path)
    worked = examples[0]["worked"]
    assert len(worked) == 3 and all(one["worked"] == worked for one in examples)
    *shown, last = QA.prompt(examples[0])
    assert [turn["role"] for turn in shown] == ["user", "assistant"] * 3 and last["content"] == examples[0]["question"]
    assert shown[0]["content"].startswith("Answer the question.") and "\n".join(worked[0]).endswith(shown[1]["content"])
    assert "Complete the sentence." in last["content"] and shown[2]["content"] == worked[1][0]


def test_worked_examples_are_in_no_other_split_and_nothing_is_sampled_on_them(tmp_path):
    config = chosen(splits=SPLITS)
    asked = [one["question"] for split in ("test", "sft") for one in frozen(config, split, tmp_path)[1]]
    shown = {question for question, _ in frozen(config, "test", tmp_path)[1][0]["worked"]}
    assert len(set(asked)) == 30 and not shown & set(asked)
    assert settings.splits(config, "qa-wikidata", "llama3-8b") == ["sft", "test"]


def test_a_model_may_see_fewer_of_them(tmp_path):
    example = frozen(chosen(splits=SPLITS), "test", tmp_path)[1][0]
    bare = {key: value for key, value in example.items() if key != "worked"}
    assert len(QA.prompt(example, 2)) == 5 and QA.prompt(example, 0) == QA.prompt(bare)
    for shots, here, there in ((4, example, 3), (1, bare, 0)):
        with pytest.raises(BadInput, match=f"shots is {shots}; expected a number from 0 to {there}"):
            QA.prompt(here, shots)


def test_without_the_key_prompts_are_as_before(tmp_path):
    written_before = {"id": "test-0", "question": "Why?", "context": "It rains.", "choices": None, "reference": ["x"]}
    asked = (
        "Answer the question. Reply with only the answer, as short as possible.\n\nPassage: It rains.\n\nQuestion: Why?"
    )
    assert QA.prompt(written_before) == [{"role": "user", "content": asked}]
    config = chosen(splits={"test": {"from": "test", "size": 20}})
    assert all("worked" not in one for one in frozen(config, "test", tmp_path)[1])


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        (ARITHMETIC, {"source": {}}, "splits.shots: task qa has worked examples of your own, and .*arithmetic.py has not"),
        ("qa", {"source": {"path": "x"}, "fields": {"question": "q", "answer": "a"}, "reasoning": True},
         "and no reasoning"),
        ("qa", {"source": {"path": "x"}, "fields": {"question": "q"}}, r"question with its answer \(fields.answer\)"),
    ],
)  # fmt: skip
def test_worked_examples_that_cannot_be_are_refused_with_the_configuration(tmp_path, task, changes, message):
    splits = {"shots": {"from": "test", "size": 2}, "test": {"from": "test", "size": 5}}
    mine = tmp_path / "mine.yaml"
    mine.write_text(json.dumps({"datasets": {"mine": {"task": task, "splits": splits} | changes}}))
    with pytest.raises(BadInput, match=message):
        read_config([str(ROOT / "config.yaml"), str(ROOT / "config" / "demo.yaml"), str(mine)])
