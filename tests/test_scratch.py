"""Answer models trained from scratch: their questions, their tokenizers, and a cell of the laboratory."""

import re

import numpy as np
import pytest
from conftest import ROOT
from evidence.lab import graded, scratch
from evidence.lab.experiments import SCRATCH

from orce import tasks
from orce.config.load import read_config
from orce.errors import BadInput

KINDS = ("sums", "counts", "lookups")


@pytest.fixture(scope="module")
def config():
    return SCRATCH.configuration("counts-values-0")


@pytest.mark.parametrize("kind", KINDS)
def test_no_question_stands_in_two_splits_not_even_with_its_operands_exchanged(kind):
    sizes = {"pretrain": 3000, "train": 1000, "validation": 300, "test": 500}
    load = graded.loader(kind, 3)
    twins = {split: [graded.twin(one) for one in load({"size": size}, split)] for split, size in sizes.items()}
    every = [key for keys in twins.values() for key in keys]
    assert [len(keys) for keys in twins.values()] == list(sizes.values())
    assert len(set(every)) == len(every)


def test_exchanged_summands_are_twins():
    assert graded.twin({"question": "77+408"}) == graded.twin({"question": "408+77"})


def test_the_test_set_is_the_same_for_every_seed():
    load = graded.loader("sums", 3)
    assert load({"size": 50}, "test", 1) == load({"size": 50}, "test", 2)


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_is_right_and_difficulty_is_a_dial(kind):
    easy, hard = (graded.loader(kind, difficulty)({"size": 40}, "test") for difficulty in (2, 5))
    for one in easy:
        asked = one["question"]
        if kind == "sums":
            assert one["reference"] == str(sum(map(int, asked.split("+"))))
        if kind == "counts":
            letter, text = asked.split(" in ")
            assert one["reference"] == str(text.count(letter))
    if kind == "lookups":
        assert max(one["question"][2] for one in hard) > max(one["question"][2] for one in easy)
    else:
        assert np.mean([len(one["question"]) for one in hard]) > np.mean([len(one["question"]) for one in easy])


@pytest.mark.parametrize(
    ("difficulty", "size", "split", "said"),
    [
        (3, 5, "dev", "no split 'dev'; a graded task has the splits pretrain, train, validation, test"),
        (3, 5000, "test", "source.size is 5000; split 'test' has up to 2000 examples"),
        (1, 100, "test", "split 'test' of sums at difficulty 1 has"),
    ],
)
def test_questions_that_are_not_there_are_named(difficulty, size, split, said):
    with pytest.raises(BadInput, match=said):
        graded.loader("sums", difficulty)({"size": size}, split)


@pytest.mark.parametrize(
    ("over", "place"),
    [
        ("models: {mine: {label: mine, source: {scratch: sums}}}", "config: models.mine.source: {'scratch': 'sums'}"),
        ("datasets: {arithmetic: {source: {kind: sums}}}", "config: datasets.arithmetic.source: "),
    ],
)
def test_the_workflow_does_not_know_the_keys_of_the_laboratory(tmp_path, over, place):
    (tmp_path / "mine.yaml").write_text(over)
    with pytest.raises(BadInput, match=re.escape(place)):
        read_config([str(ROOT / "config.yaml"), str(ROOT / "config" / "demo.yaml"), str(tmp_path / "mine.yaml")])


TINY = {"steps": 3, "batch_size": 4, "width": 16, "layers": 1}


@pytest.fixture(scope="module", params=["values", "digits"])
def made(request, config, tmp_path_factory):
    """A model that was trained for three steps."""
    folder = tmp_path_factory.mktemp("scratch") / request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(scratch.TRAINED, "sums", scratch.TRAINED["sums"] | TINY)
        scratch.make(f"sums-{request.param}-0", tasks.get(config.datasets["sums"].task), folder)
    return request.param, folder


def test_a_model_from_scratch_is_read_like_one_of_the_hub(made):
    from orce.llm import language_model
    from orce.llm.chat import completion_ids, prompt_ids

    numbers, folder = made
    lm = language_model.load({"source": {"path": str(folder)}, "dtype": "float32", "device": "cpu"})
    turn = completion_ids(lm.tokenizer, "Confidence: 73")
    assert len(turn) == {"values": 3, "digits": 4}[numbers]
    assert lm.tokenizer.decode(turn, skip_special_tokens=True) == "Confidence: 73"
    asked = prompt_ids(lm.tokenizer, [{"role": "user", "content": "408+77"}])
    assert lm.tokenizer.decode(asked) == "<user>408+77<end><assistant>"
    assert len(asked) == 9


@pytest.mark.slow
def test_a_cell_of_the_laboratory_goes_through_the_steps_of_the_workflow(config, tmp_path, monkeypatch):
    from evidence.lab import bench

    small = bench.changed(config)
    trained = scratch.TRAINED["counts"] | {"steps": 150, "batch_size": 32, "width": 32, "layers": 1}
    monkeypatch.setitem(scratch.TRAINED, "counts", trained)
    for split, size in {"sft": 16, "rl": 24, "validation": 20, "test": 40}.items():
        small.datasets["counts"].splits[split].size = size
    small.answers.samples = 4
    cell = bench.Bench(small, "counts-values-0", 1, tmp_path / "cell", tmp_path / "shared")
    with cell.here():
        cell.answer()
        start = cell.sft()
        drawn = cell.candidates(start)
        tested = {
            "sft": cell.state("sft", start, bench.TEST),
            "all": cell.state("all", cell.trained("all", "sft_all", epochs=1), bench.TEST),
            "sc": cell.state("sc", cell.dpo("sc", "sc", start, drawn, beta=1.0), bench.VALIDATION),
        }
    assert [len(one["correct"]) for one in tested.values()] == [40, 40, 20]
    assert all(0 <= one["mean"].min() <= one["mean"].max() <= 1 for one in tested.values())
    assert {"accuracy", "stated_e_aurc", "mean_e_aurc"} <= set(bench.scores(tested["sc"]))
