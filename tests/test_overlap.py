"""Train / test hygiene: overlap is found, exact or near, and nothing else is."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import ARITHMETIC, ROOT, WORLDFACTS
from msgspec.structs import replace

from orce import stages, tasks
from orce.artefacts import files
from orce.config import check as configuration
from orce.config import load
from orce.config.schema import Split
from orce.errors import BadInput
from orce.stages import overlap as step
from orce.stages.prompts import Settings as Prompts
from orce.stages.prompts import draw
from orce.tasks.examples import Match, overlaps

PASSAGE = (
    "Every editor of the journal reads each submission twice, once for its argument and once for its style, and the "
    "board meets on the first Monday of the month to decide which of the submissions will be sent out for review."
)


def item(id, question, context=None, choices=None):
    return {"id": id, "question": question, "context": context, "choices": choices, "reference": "A"}


def test_the_same_question_is_exact_whatever_its_case_punctuation_and_order_of_options():
    train = [item("t", "Which follows?", PASSAGE, ["one thing", "another"])]
    test = [item("e", "which follows", PASSAGE.upper(), ["another", "one thing"])]
    assert overlaps(train, test) == [Match("t", "e", "exact", 1.0)]


def test_an_edited_passage_is_near_and_another_one_is_not():
    edited = PASSAGE.replace("Monday", "Friday")
    other = "The museum opens at nine, and its guides speak three languages, but only one of them works at weekends."
    found = overlaps(
        [item("a", "Which follows?", edited), item("b", "Which follows?", other)],
        [item("e", "Which follows?", PASSAGE)],
    )
    assert [(match.train, match.kind) for match in found] == [("a", "near")]
    assert 0.8 <= found[0].containment < 1


def test_questions_are_compared_by_passages_and_short_ones_by_every_sign():
    assert overlaps([item("a", "", PASSAGE + " It has done so since it was founded.")], [item("e", "", PASSAGE)])
    train = [item("a", "What is 3 * 4?"), item("b", "What is the capital of Peru?")]
    assert overlaps(train, [item("e", "What is 3 + 4?"), item("f", "What is the capital of Chile?")]) == []


@pytest.mark.parametrize("name", [ARITHMETIC, WORLDFACTS])
def test_no_question_of_a_generated_task_is_in_two_splits(name):
    """Near ones there are: the languages of Guinea and of Guinea-Bissau."""
    task = tasks.get(name)
    found = overlaps(task.load({}, "train"), task.load({}, "test"))
    assert [match for match in found if match.kind == "exact"] == []


def write_reclor_like(folder, name, rows):
    records = [
        {
            "context": c,
            "question": "Which follows?",
            "answers": ["w", "x", "y", "z"],
            "label": 0,
            "id_string": f"{name}_{i}",
        }
        for i, c in enumerate(rows)
    ]
    (folder / f"{name}.json").write_text(json.dumps(records))


def test_overlap_is_reported_and_removed_where_the_config_says_so(tmp_path):
    passages = [f"Passage {i}: {' '.join(f'word{i}x{j}' for j in range(30))}" for i in range(8)]
    write_reclor_like(tmp_path, "train", passages[:6])
    write_reclor_like(tmp_path, "val", [passages[2], passages[7]])
    cut = Prompts(dataset="d", task="reclor", source={"path": str(tmp_path)}, seed=0, splits={"sft": Split(origin="train"), "test": Split(origin="val")}, tests=[])  # fmt: skip
    assert len(draw(cut, "sft")) == 6
    kept = draw(replace(cut, tests=[cut]), "sft")
    assert len(kept) == 5 and passages[2] not in [example["context"] for example in kept]
    for split in ("sft", "test"):
        files.write_jsonl(tmp_path / f"{split}.jsonl", draw(cut, split))

    train, test, out = (str(tmp_path / name) for name in ("sft.jsonl", "test.jsonl", "overlap.json"))
    step.run(test, out, [train], "reclor")
    (report,) = json.loads(Path(out).read_text()).values()
    assert (report["exact"], report["near"], report["n_train"], report["n_test"]) == (1, 0, 6, 2)


@pytest.mark.parametrize(("task", "one", "other", "same"), [
    (ARITHMETIC, "What is 3 + 5?", "What is 5 + 3?", True),
    (ARITHMETIC, "What is 8 - 3?", "What is 3 + 5?", True),
    (ARITHMETIC, "What is 3 * 5?", "What is 5 * 3?", True),
    (ARITHMETIC, "What is 3 * 5?", "What is 3 + 5?", False),
    (WORLDFACTS, "What is the capital of Peru?", "Which country has the capital Lima?", True),
    (WORLDFACTS, "What is the capital of Peru?", "Which continent is Peru in?", False),
])  # fmt: skip
def test_twins_ask_the_same(task, one, other, same):
    module = tasks.get(task)
    every = [example for split in ("train", "validation", "test") for example in module.load({}, split)]
    known = {example["question"]: example for example in every}
    found = overlaps([known.get(one) or item(one, one)], [known.get(other) or item(other, other)], task=module)
    assert [match.kind for match in found] == (["twin"] if same else [])


LOGIQA_SPLITS = load.mapping(ROOT / "config.yaml")["datasets"]["logiqa"]["splits"]
LEFT = {"sft": {"from": "train", "size": 4}, "rl": {"from": "train", "size": None}, "test": {"from": "test"}}


def write_logiqa(folder, name, places):
    """A LogiQA file whose passages have a number each; equal numbers are equal questions."""
    records = [
        {"id": i, "text": " ".join(f"word{i}x{j}" for j in range(30)), "question": "Which follows?",
         "options": ["w", "x", "y", "z"], "answer": i % 4}
        for i in places
    ]  # fmt: skip
    (folder / f"{name}.txt").write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("splits", "sizes"), [(LOGIQA_SPLITS, (8, 16)), (LEFT, (4, 20))], ids=["shares", "what is left"]
)
def test_overlaps_are_removed_by_the_workflow_and_the_splits_take_what_is_left(tmp_path, splits, sizes):
    """The shipped LogiQA entry with remove_overlap: true, over files of which 6 of 30 stand in a test set."""
    data = tmp_path / "data"
    data.mkdir()
    write_logiqa(data, "train", range(30))
    write_logiqa(data, "test", [*range(4), *range(100, 106)])
    passages = [" ".join(f"word{i}x{j}" for j in range(30)) for i in (4, 5, 200)]
    write_reclor_like(data, "val", passages)
    over = {
        "datasets": {
            "logiqa": {"source": {"path": "data"}, "splits": splits, "remove_overlap": True},
            "reclor": {"source": {"path": "data"}},
        }
    }
    (tmp_path / "config.yaml").write_text((ROOT / "config.yaml").read_text())
    (tmp_path / "over.yaml").write_text(yaml.safe_dump(over))
    prompts = [f"results/logiqa/prompts/{split}.jsonl" for split in ("sft", "rl")]
    command = [str(Path(sys.executable).with_name("snakemake")), "--snakefile", str(ROOT / "Snakefile"), "--cores", "2"]
    command += ["--configfile", "over.yaml", "--", *prompts, "results/logiqa/overlap.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    frozen = [files.read_jsonl(tmp_path / path) for path in prompts]
    assert tuple(map(len, frozen)) == sizes
    drawn = [int(example["id"].removeprefix("train-")) for examples in frozen for example in examples]
    assert len(drawn) == len(set(drawn)) and not set(drawn) & set(range(6))
    for report in files.read_json(tmp_path / "results/logiqa/overlap.json").values():
        assert (report["exact"], report["near"]) == (0, 0)


def test_a_size_that_the_removal_leaves_no_room_for_says_so(tmp_path):
    passages = [f"Passage {i}: {' '.join(f'word{i}x{j}' for j in range(30))}" for i in range(6)]
    write_reclor_like(tmp_path, "train", passages)
    write_reclor_like(tmp_path, "val", passages[:2])
    cut = Prompts(dataset="d", task="reclor", source={"path": str(tmp_path)}, seed=0, tests=[], splits={"sft": Split(origin="train", size=5), "test": Split(origin="val")})  # fmt: skip
    message = (
        r"datasets.d.splits.sft: size 5 after 0 examples taken by other splits, but the source split 'train' has 4, "
        r"2 that overlap with a test set left out; give a share \(size: 1/3\), or null for what is left"
    )
    with pytest.raises(BadInput, match=message):
        draw(replace(cut, tests=[cut]), "sft")


def test_removal_needs_a_test_set_of_its_own():
    config = copy.deepcopy(load.mapping(ROOT / "config.yaml"))
    config["datasets"]["logiqa"] |= {"remove_overlap": True}
    checked = configuration.check(config)
    tests = stages.of("prompts", checked, "logiqa").tests
    assert [one.dataset for one in tests] == ["logiqa", "reclor"]
    assert stages.of("prompts", checked, "mmlu").tests == []
    config["datasets"]["logiqa"]["splits"]["test"] = {"from": "train", "size": 9}
    with pytest.raises(BadInput, match="datasets.logiqa.remove_overlap: needs a test split from another source split"):
        configuration.check(config)
