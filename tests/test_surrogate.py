"""The correctness likelihood of a prompt and the answer shown to the confidence LLM."""

import itertools
from collections import Counter

import numpy as np
import pytest

from orce.errors import BadInput
from orce.records import Greedy, Row, Sample
from orce.stages import surrogate
from orce.surrogate import kappa, read_surrogate, realised_answer, write_surrogate


def test_kappa_is_the_share_of_right_samples():
    assert kappa([True, False, True, True]) == 0.75
    assert kappa(np.array([0, 0, 0])) == 0
    assert kappa([1]) == 1
    assert [kappa([1] * k + [0] * (10 - k)) for k in range(11)] == [k / 10 for k in range(11)]


def test_kappa_needs_judged_samples():
    with pytest.raises(ValueError, match="no kappa"):
        kappa([])
    with pytest.raises(ValueError, match="0 or 1"):
        kappa([1, None])


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_every_pattern_of_correctness_has_a_realised_answer(n):
    for correct in itertools.product([False, True], repeat=n):
        answer, right = realised_answer(list(range(n)), correct, np.random.default_rng(0))
        assert right is (kappa(correct) >= 0.5)
        assert correct[answer] == right


def test_a_tie_at_one_half_shows_a_right_answer():
    assert realised_answer(["A", "B"], [False, True], np.random.default_rng(0)) == ("B", True)


def test_eligible_samples_are_equally_likely():
    rng = np.random.default_rng(0)
    drawn = Counter(realised_answer(["A", "B", "C", "A"], [1, 0, 1, 1], rng)[0] for _ in range(3000))
    assert set(drawn) == {"A", "C"}
    assert drawn["A"] == pytest.approx(2000, abs=110)


def test_a_seed_fixes_the_choice():
    draws = [realised_answer(list("ABCD"), [1, 1, 1, 1], np.random.default_rng(3)) for _ in range(5)]
    assert len(set(draws)) == 1


def test_answers_and_judgements_must_match():
    with pytest.raises(ValueError, match="2 answers but 1"):
        realised_answer(["A", "B"], [1], np.random.default_rng(0))


def record(split, name):
    """Eight samples of which half are right, each with a text of its own, and a greedy answer that is wrong."""
    answers = list("ABCDEFGH")
    greedy = Greedy(answer="Z", raw="Z", correct=False, f1=None)
    return Sample(id=name, split=split, answers=answers, raw=answers, correct=[True, False] * 4, greedy=greedy)


def test_a_training_prompt_shows_its_realised_answer_and_a_test_prompt_its_greedy_one():
    shown = surrogate.row(record("rl", "q"), 1)
    assert shown.answer in "ACEG" and shown.answer_correct == 1
    assert (shown.n_correct, shown.n_samples, shown.kappa) == (4, 8, 0.5)
    for split in ("validation", "test"):
        greedy = surrogate.row(record(split, "q"), 1)
        assert (greedy.answer, greedy.answer_correct, greedy.kappa) == ("Z", 0, 0.5)


def test_each_prompt_draws_its_realised_answer_by_itself():
    drawn = [surrogate.row(record("sft", f"q{i}"), 1).answer for i in range(40)]
    assert set(drawn) == set("ACEG")
    assert drawn == [surrogate.row(record("sft", f"q{i}"), 1).answer for i in range(40)]


ROW = {
    "id": "7", "split": "rl", "n_correct": 1, "n_samples": 3, "kappa": 1 / 3, "answer": 'a "b",\nc', "answer_correct": 0,
}  # fmt: skip


def test_the_table_is_read_as_it_was_written(tmp_path):
    others = [{"id": "007", "answer": ""}, {"id": "x", "answer": "NA", "kappa": 0.1 + 0.2}]
    rows = [Row(**ROW | changed) for changed in [{}, *others]]
    with open(tmp_path / "surrogate.csv", "w", newline="") as handle:
        write_surrogate(handle, rows)
    assert read_surrogate(tmp_path / "surrogate.csv") == rows


def test_a_broken_table_is_named_by_file_and_line(tmp_path):
    path = tmp_path / "surrogate.csv"
    path.write_text("id,split\n")
    with pytest.raises(BadInput, match="surrogate.csv: no column 'n_correct'; expected id, split, n_correct"):
        read_surrogate(path)
    path.write_text(f"{','.join(ROW)}\n7,rl,1,3,0.3,a,1\n8,rl,1,3,much,a,1\n")
    with pytest.raises(BadInput, match="surrogate.csv, line 3: kappa is 'much'; expected a number"):
        read_surrogate(path)
    path.write_text(f"{','.join(ROW)}\n7,rl,1,3\n")
    with pytest.raises(BadInput, match="line 2: kappa is None"):
        read_surrogate(path)
