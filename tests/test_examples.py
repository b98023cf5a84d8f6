"""docs/examples: the task for lm-evaluation-harness, run by the harness itself."""

import json

import pytest
from conftest import ROOT

from orce import metrics

lm_eval = pytest.importorskip("lm_eval", reason="lm-eval is not installed (envs/test.txt)")
pytestmark = pytest.mark.slow


def test_the_harness_gives_the_numbers_of_orce_metrics(tmp_path):
    """For a model that is right on even questions and leaves out every eighth confidence."""
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager

    lines = (json.dumps({"question": f"What is {i} + {i}?", "reference": str(2 * i)}) for i in range(40))
    (tmp_path / "questions.jsonl").write_text("\n".join(lines))
    stated = [0.5 if i % 8 == 7 else (90 - i if i % 2 == 0 else 10 + i) / 100 for i in range(40)]
    right = [i % 2 == 0 for i in range(40)]

    class Scripted(LM):
        def generate_until(self, requests, **_):
            assert all("Confidence" in one.args[0] and f"{one.doc_id} + " in one.args[0] for one in requests)
            answers = [f"Answer: {2 * one.doc_id + one.doc_id % 2}" for one in requests]
            ends = ["" if one.doc_id % 8 == 7 else f"\nConfidence: {stated[one.doc_id]:.0%}" for one in requests]
            return [answer + end for answer, end in zip(answers, ends, strict=True)]

        def loglikelihood(self, requests, **_):
            raise NotImplementedError

        loglikelihood_rolling = loglikelihood

    manager = TaskManager(
        include_path=str(ROOT / "docs/examples/lm_eval"),
        include_defaults=False,
        metadata={"questions": str(tmp_path / "questions.jsonl")},
    )
    found = lm_eval.simple_evaluate(Scripted(), tasks=["orce_confidence"], task_manager=manager, bootstrap_iters=0)
    scores = found["results"]["orce_confidence"]
    assert (scores["acc,none"], scores["unread,none"]) == (0.5, 1 / 8)
    assert scores["ece,none"] == pytest.approx(metrics.expected_calibration_error(stated, right))
    assert scores["auroc,none"] == pytest.approx(metrics.auroc(stated, right))
    assert scores["aurc,none"] == pytest.approx(metrics.aurc(stated, right))
