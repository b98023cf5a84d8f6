"""The task for lm-evaluation-harness, run by the harness itself."""

import math

import pytest
from conftest import ARITHMETIC, ROOT

from orce import metrics, tasks
from orce.apps import harness
from orce.artefacts import files

lm_eval = pytest.importorskip("lm_eval", reason="lm-eval is not installed (envs/test.txt)")
pytestmark = pytest.mark.slow

LIMIT = 40


@pytest.fixture(scope="module")
def evaluated():
    """(results of lm_eval, the prompts, what was stated, what was right) for a model that is right on even questions."""
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager

    examples = tasks.get(ARITHMETIC).load({}, "test", 0)[:LIMIT]
    asked, stated, right = [], [], []

    class Scripted(LM):
        def generate_until(self, requests, **_):
            replies = []
            for request in requests:
                i = request.doc_id
                asked.append(request.args[0])
                wrong = "" if i % 2 == 0 else "1"
                said = None if i % 8 == 7 else (90 - i if i % 2 == 0 else 10 + i)
                stated.append(0.5 if said is None else said / 100)
                right.append(i % 2 == 0)
                end = "" if said is None else f"\nConfidence: {said}%"
                replies.append(f"Explanation: so it is.\nAnswer: {examples[i]['reference']}{wrong}{end}")
            return replies

        def loglikelihood(self, requests, **_):
            raise NotImplementedError

        loglikelihood_rolling = loglikelihood

    found = lm_eval.simple_evaluate(
        model=Scripted(),
        tasks=["orce_confidence"],
        task_manager=TaskManager(include_path=harness.PATH, include_defaults=False),
        limit=LIMIT,
        bootstrap_iters=0,
    )
    return found["results"]["orce_confidence"], asked, stated, right


def test_the_harness_gives_the_numbers_of_orce_metrics(evaluated):
    found, _, stated, right = evaluated
    assert found["acc,none"] == 0.5 and found["unparsed,none"] == LIMIT // 8 / LIMIT
    assert found["ece,none"] == pytest.approx(metrics.expected_calibration_error(stated, right))
    assert found["brier,none"] == pytest.approx(metrics.brier(stated, right))
    assert found["auroc,none"] == pytest.approx(metrics.auroc(stated, right))
    assert found["aurc,none"] == pytest.approx(metrics.aurc(stated, right))
    assert not math.isnan(found["auroc,none"])


def test_every_question_is_asked_for_answer_and_confidence(evaluated):
    _, asked, *_ = evaluated
    assert len(asked) == LIMIT and len(set(asked)) == LIMIT
    assert all("Confidence" in one and "What is" in one for one in asked)


def test_frozen_prompts_of_a_run_are_asked_by_their_task(tmp_path):
    from orce.apps.harness import confidence

    files.write_jsonl(
        tmp_path / "test.jsonl", tasks.get("mmlu").load({"path": str(ROOT / "tests/data/mmlu")}, "test")[:12]
    )
    found = confidence.dataset(str(tmp_path / "test.jsonl"), "mmlu", version=1.0)["test"]
    assert len(found) == 12 and "A." in confidence.prompt(found[0])
    reply = f"Explanation: known.\nAnswer: {found[0]['reference']}\nConfidence: 80%"
    assert confidence.process_results(found[0], [reply])["ece"] == (0.8, True)
