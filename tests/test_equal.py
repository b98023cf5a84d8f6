"""Equal is equal: scores do not depend on the order of the samples, and a percent is that percent in float32 and float16 too.

Each line of tests/data/equal.jsonl goes through `orce score`; configurations of tests/data/odd_yaml.jsonl through their reader.
"""

import numpy as np
import pytest
from conftest import ROOT, cases

from orce.__main__ import main
from orce.artefacts import files
from orce.config.check import read_config
from orce.errors import BadInput

LINES = {kind: [case for case in cases("equal") if case["kind"] == kind] for kind in ("order", "threshold", "metrics")}


def score(folder, records, method, *options):
    files.write_jsonl(folder / "in.jsonl", records)
    out = folder / "out.jsonl"
    assert main(["score", "--method", method, "--in", str(folder / "in.jsonl"), "--out", str(out), *options]) == 0
    return files.read_jsonl(out)


@pytest.mark.parametrize("case", LINES["order"], ids=lambda case: case["method"])
def test_the_order_of_the_samples_changes_no_bit(case, tmp_path):
    scored = score(tmp_path, [{"answers": answers} for answers in case["answers"]], case["method"])
    assert len({record["confidence"] for record in scored}) == 1


def short(values, dtype, mixed=False):
    rounded = np.array(values, dtype).astype(float).tolist()
    return [
        value if mixed and i % 2 else as_read for i, (value, as_read) in enumerate(zip(values, rounded, strict=True))
    ]


def given(confidences, correct):
    return [{"answer": str(i), "confidence": c, "correct": bool(y)} for i, (c, y) in enumerate(zip(confidences, correct, strict=True))]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("case", LINES["threshold"])
def test_a_threshold_keeps_the_same_answers(case, dtype, tmp_path):
    stated, confidence = case["calibration"], case["confidence"]
    right = [i < case["right"] for i in range(len(stated))]
    kept = []
    for known, asked in ((stated, confidence), (short(stated, dtype), confidence), (stated, short(confidence, dtype))):
        files.write_jsonl(tmp_path / "known.jsonl", given(known, right))
        options = ["--threshold-for-risk", "0.1", "--calibration", str(tmp_path / "known.jsonl")]
        kept.append([record["kept"] for record in score(tmp_path, given(asked, [1] * len(asked)), "given", *options)])
    assert kept == [[True] * len(confidence)] * 3


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("case", LINES["metrics"])
def test_metrics_are_the_same(case, dtype, tmp_path):
    measured = []
    for values in (case["confidence"], short(case["confidence"], dtype, case.get("mixed", False))):
        score(tmp_path, given(values, case["correct"]), "given", "--metrics", str(tmp_path / "metrics.json"))
        measured.append(files.read_json(tmp_path / "metrics.json"))
    assert measured[0] == measured[1]


@pytest.mark.parametrize("case", cases("odd_yaml"), ids=lambda case: " | ".join(case["yaml"])[-60:])
def test_a_configuration_means_what_it_says_or_is_refused(case, tmp_path):
    mine = [tmp_path / f"{i}.yaml" for i in range(len(case["yaml"]))]
    for path, text in zip(mine, case["yaml"], strict=True):
        path.write_text(text)
    paths = [str(path) for path in (ROOT / "config.yaml", ROOT / "config" / "demo.yaml", *mine)]
    if case["error"] is None:
        read_config(paths)
        return
    with pytest.raises(BadInput) as error:
        read_config(paths)
    assert case["error"] in str(error.value) and "\n" not in str(error.value)
