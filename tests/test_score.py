"""Scoring anyone's pairs: the workflow's own values, broken lines beside whole ones, bounded memory, resuming."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time

import finished_run
import numpy as np
import pytest
from conftest import ARITHMETIC, ROOT, WORLDFACTS, cases
from dry_run import called

import orce
from orce import tasks
from orce.__main__ import main
from orce.artefacts import files
from orce.config.check import read_config
from orce.errors import BadInput
from orce.judge.judge import AsGiven

CELL = finished_run.CELL / "sft"
VALUES = ("confidence", "stated", "mean", "mass", "raw", "retried")
BATCHES = ("--batch-tokens", "512", "--chunk", "8")  # those of the finished run


def scored(path, *arguments) -> list[dict]:
    out = path.with_suffix(".scored")
    assert main(["score", "--in", str(path), "--out", str(out), *BATCHES, *arguments]) == 0
    return files.read_jsonl(out)


def values(records):
    return [[record[key] for key in VALUES] for record in records]


def write(path, records):
    files.write_jsonl(path, records)
    return path


def pairs(n, **more):
    return [{"id": i, "question": f"What is {i} + {i % 7}?", "answer": str(i + i % 7), **more} for i in range(n)]


def test_scores_are_those_of_the_workflows_evaluation_and_of_vanilla_without_training(finished, tmp_path, small):
    records = scored(write(tmp_path / "pairs.jsonl", finished_run.pairs(finished)), "--model", str(finished / CELL))
    evaluated = files.read_jsonl(finished / CELL / "confidences.jsonl")
    assert [record["id"] for record in records] == [record["id"] for record in evaluated]
    assert values(records) == values(evaluated)
    assert any(record["answer"] is None for record in records)
    with contextlib.chdir(finished):
        finished_run.state(tmp_path / "vanilla.jsonl")
    records = scored(write(tmp_path / "pairs.jsonl", finished_run.pairs(finished)), "--base", small)
    assert values(records) == values(files.read_jsonl(tmp_path / "vanilla.jsonl"))


def test_three_lines_of_python_the_record_that_is_no_pair_and_an_endless_stream(finished, small):
    scorer = orce.load_judge(finished / CELL)
    (record,) = scorer([{"question": "What is 17 * 3?", "answer": "51", "mine": [1, 2]}])
    assert record["mine"] == [1, 2] and 0 <= record["mean"] <= 1 and set(VALUES) < set(record)
    with pytest.raises(BadInput, match="record 2: no key 'answer'"):
        list(scorer([{"question": "What is 1 + 1?", "answer": "2"}, {"question": "What is 1 + 1?"}]))
    scorer = orce.load_judge(base=small, chunk=2, batch_tokens=200)
    stream = scorer({"question": f"What is {i}?", "answer": str(i)} for i in iter(int, 1))
    assert [next(stream)["answer"] for _ in range(5)] == ["0"] * 5


EXAMPLE = {"id": "1", "question": "Which one?", "context": None, "choices": None}
CHOICES = {"choices": ["B", "the second ", "a third"]}
EXAMPLES = {
    "mmlu": (EXAMPLE | CHOICES, ["A", "B", "C", None]),
    "logiqa": (EXAMPLE | CHOICES | {"context": "A text."}, ["A", "B", "C", None]),
    "reclor": (EXAMPLE | CHOICES | {"context": "A text."}, ["A", "B", "C", None]),
    "drop": (EXAMPLE | {"context": "A passage."}, ["3", "Smith; Jones", None]),
    ARITHMETIC: (EXAMPLE, ["17", "-5", None]),
    WORLDFACTS: (EXAMPLE, ["Paris", None]),
    "choice": (EXAMPLE | CHOICES, ["A", "B", "C", None]),
    "qa": (EXAMPLE | {"context": "A text."}, ["Paris", "17", None]),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_record_is_shown_as_its_task_shows_it_without_being_told_the_task(small, name):
    assert set(EXAMPLES) == {*tasks.NAMES, ARITHMETIC, WORLDFACTS}
    example, answers = EXAMPLES[name]
    given, told = (orce.load_judge(base=small, task=task) for task in (None, name))
    for answer in answers:
        assert given.prompt(example | {"answer": answer}) == told.prompt(example | {"answer": answer})


@pytest.mark.parametrize(
    ("answer", "shown"),
    [("B", "B. blue"), ("The answer is (B).", "B. blue"), ("blue", "B. blue"), ("Both of them", "Both of them")],
)
def test_a_choice_in_free_words_is_shown_as_the_option_it_names(answer, shown):
    assert AsGiven.display(answer, EXAMPLE | {"choices": ["red", "blue"]}) == shown


GOOD = b'{"question": "What is 1 + 1?", "answer": "2"}\n'
BROKEN = {
    b'{"question": "What is 1 + 1?"\n': "not a whole JSON object",
    b'{"question": "What is \xff?", "answer": "2"}\n': "not UTF-8",
    b"[1, 2]\n": "expected a JSON object, found list",
    b'{"question": "What is 1 + 1?"}\n': "no key 'answer'",
    b'{"question": 7, "answer": "2"}\n': "'question' is 7; expected a text",
    b'{"question": "What is 1 + 1?", "answer": 2}\n': "'answer' is 2; expected a text",
    b'{"question": "Which?", "answer": "A", "choices": "red"}\n': "'choices' is 'red'",
    b'{"question": "A \\ud800", "answer": "2"}\n': "not a text",
    b'{"question": "What?", "answer": "2", "note": "\\ud800"}\n': "surrogates not allowed",
    b'{"question": "What?", "answer": "2", "note": ' + b"[" * 9999 + b"]" * 9999 + b"}\n": "recursion",
    b'{"question": "What?", "answer": "' + b"2" * 9999 + b'"}\n': "tokens; the model reads at most 256",
}


def test_a_broken_line_is_named_and_the_others_go_through(small, tmp_path, capsys):
    path = tmp_path / "pairs.jsonl"
    path.write_bytes(b"".join(GOOD + line for line in BROKEN) + GOOD)
    with pytest.raises(SystemExit) as ended:
        main(["score", "--base", small, "--in", str(path), "--out", str(tmp_path / "out.jsonl"), *BATCHES])
    assert ended.value.code == 1
    records, said = files.read_jsonl(tmp_path / "out.jsonl"), capsys.readouterr().err
    assert f"{len(records)} lines, {len(BROKEN)} broken" in said
    for place, message in enumerate(BROKEN.values()):
        whole, broken = records[2 * place : 2 * place + 2]
        assert "confidence" in whole
        assert broken["line"] == 2 * place + 2 and message in broken["error"]
        assert f"{path}, line {broken['line']}: " in said
    assert "confidence" in records[-1]


def failed(*arguments) -> tuple[int, str]:
    return called(main, ["score", *map(str, arguments)])


@pytest.mark.parametrize(("name", "text", "said"), [
    ("mine.csv", "question,answer\n" + "What is 1 + 1?,2\n" * 50, "mine.csv: none of its 50 lines could be scored"),
    ("mine.jsonl", "", "mine.jsonl is empty; expected one JSON object a line"),
    ("mine.jsonl", '{"id": 1, "answer": "1"}\n' * 5, "mine.jsonl: none of its 5 lines could be scored"),
])  # fmt: skip
def test_a_file_without_a_line_to_score_is_named_once_and_nothing_is_written(name, text, said, folder):
    (folder / name).write_text(text)
    code, told = failed("--method", "given", "--in", name, "--out", "o.jsonl", "--metrics", "m.json")
    assert code == 2 and said in told.splitlines()[-1] and told.count(said) == 1
    assert not text or os.listdir(folder) == [name]


def test_equal_errors_are_said_five_times_and_then_counted(tmp_path):
    out = tmp_path / "out.jsonl"
    wrong = [{"id": i, "answer": "1", "correct": True, "confidence": 50 + i} for i in range(20)]
    path = write(tmp_path / "x.jsonl", [*wrong, wrong[0] | {"confidence": 0.5}])
    code, said = failed("--method", "given", "--in", path, "--out", out)
    *single, _, counted, closing = said.splitlines()
    assert code == 1 and len(single) == 5 and all("confidence is 5" in line for line in single)
    assert counted == f"orce score: {path}: 15 more lines like line 5" and "21 lines, 20 broken" in closing
    assert len(files.read_jsonl(out)) == 21


def test_where_every_line_of_a_pipe_is_broken_nothing_is_written(tmp_path, monkeypatch):
    path = write(tmp_path / "x.jsonl", [{"id": i, "answer": "1"} for i in range(5)])
    with open(path) as handle:
        monkeypatch.setattr(sys, "stdin", handle)
        code, said = failed("--method", "given", "--chunk", "2", "--out", tmp_path / "o.jsonl")
    assert code == 2 and said.splitlines()[-1] == "orce score: standard input: none of its 5 lines could be scored"
    assert os.listdir(tmp_path) == ["x.jsonl"]


def test_an_answer_of_ones_own_stays_beside_the_one_that_was_judged(tmp_path):
    record = {"id": 1, "answer": "Paris.", "references": ["Paris"], "confidence": 0.9, "mine": [1]}
    (found,) = scored(write(tmp_path / "x.jsonl", [record]), "--method", "given", "--metrics", str(tmp_path / "m.json"))
    assert found == record | {"judged": "Paris", "correct": True}
    (same,) = scored(write(tmp_path / "y.jsonl", [record | {"answer": "Paris"}]), "--method", "given")
    assert "judged" not in same


def test_calibration_on_the_scored_items_is_named(tmp_path):
    records = [{"id": i, "answer": "1", "correct": i % 5 > 0, "confidence": i / 100} for i in range(100)]
    path = write(tmp_path / "x.jsonl", records)
    other = write(tmp_path / "y.jsonl", [one | {"id": -1 - one["id"]} for one in records])
    said = {}
    for calibration in (path, other):
        arguments = ["--threshold-for-risk", "0.4", "--calibration", calibration]
        code, said[calibration] = failed("--method", "given", "--in", path, "--out", tmp_path / "o.jsonl", *arguments)
        assert code == 0
    assert f"[score] 100 of these records are in {path} too: the threshold was chosen on them" in said[path]
    assert "of these records are in" not in said[other]


def test_from_standard_input_to_standard_output(small, monkeypatch, capsys, tmp_path):
    write(tmp_path / "pairs.jsonl", pairs(20))
    with open(tmp_path / "pairs.jsonl") as handle:
        monkeypatch.setattr(sys, "stdin", handle)
        assert main(["score", "--base", small, *BATCHES]) == 0
    printed = [json.loads(line) for line in io.StringIO(capsys.readouterr().out)]
    assert printed == scored(tmp_path / "pairs.jsonl", "--base", small)


def run(out, path, small, **options):
    command = [sys.executable, "-m", "orce", "score", "--base", small, "--in", str(path), "--out", str(out)]
    command += ["--chunk", "50", "--batch-tokens", "8192", "--device", "cpu"]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)


@pytest.mark.slow
def test_a_killed_run_goes_on_where_it_stopped_and_ends_with_the_same_bytes(small, tmp_path):
    path = write(tmp_path / "pairs.jsonl", pairs(600))
    out, partial = tmp_path / "out.jsonl", tmp_path / ".partial"
    process = run(out, path, small)
    while not [*partial.glob("*/*.jsonl")]:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL and not out.exists()
    kept = b"".join(chunk.read_bytes() for chunk in sorted(partial.glob("*/*.jsonl")))
    assert 0 < kept.count(b"\n") < 600
    assert run(out, path, small).wait() == 0
    assert out.read_bytes().startswith(kept)
    straight = tmp_path / "straight.jsonl"
    assert run(straight, path, small).wait() == 0
    assert out.read_bytes() == straight.read_bytes()


def peak(process) -> int:
    """Peak memory of a process that ends well, in bytes."""
    _, status, used = os.wait4(process.pid, 0)
    process.stderr.close()
    assert status == 0
    return used.ru_maxrss * 1024


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(small, tmp_path):
    """1,000 lines of 100 kB each, and 100 of them."""
    few, many = (write(tmp_path / f"{n}.jsonl", pairs(n, note="x" * 100_000)) for n in (100, 1000))
    low, high = (peak(run(tmp_path / f"{path.stem}.out", path, small)) for path in (few, many))
    assert high - low < 40e6
    with open(tmp_path / "1000.out") as handle:
        assert sum("confidence" in json.loads(line) for line in handle) == 1000


def test_answers_are_marked_by_the_threshold_for_a_risk(finished, tmp_path, capsys):
    calibration = [{"confidence": i / 100, "correct": i >= 50} for i in range(101) for _ in range(10)]
    write(tmp_path / "labelled.jsonl", calibration)
    write(tmp_path / "pairs.jsonl", finished_run.pairs(finished))
    chosen = ["--threshold-for-risk", "0.2", "--calibration", str(tmp_path / "labelled.jsonl"), "--readout", "mean"]
    records = scored(tmp_path / "pairs.jsonl", "--model", str(finished / CELL), *chosen)
    threshold = float(capsys.readouterr().err.split("threshold ")[1].split()[0])
    assert 0.35 < threshold < 0.5  # it may take 0.2 / 0.8 as many wrong ones as right ones, less what chance asks for
    assert all(record["kept"] == (record["mean"] >= threshold) for record in records)


@pytest.mark.parametrize(("arguments", "message"), cases("score_mistakes"))
def test_a_mistake_ends_in_one_line_before_anything_is_scored(tmp_path, capsys, arguments, message):
    with contextlib.chdir(tmp_path):
        write(tmp_path / "bad.jsonl", [{"confidence": 80, "correct": True}])
        write(tmp_path / "fine.jsonl", [{"confidence": 0.8, "correct": True}])
        write(tmp_path / "pairs.jsonl", pairs(1))
        assert main(["score", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("orce score: ") and message in line


def test_an_adapter_whose_base_is_gone_says_what_to_name(finished, tmp_path, capsys):
    folder = tmp_path / "adapter"
    folder.mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors", "manifest.json"):
        (folder / name).write_bytes((finished / CELL / name).read_bytes())
    write(tmp_path / "pairs.jsonl", pairs(1))
    assert main(["score", "--model", str(folder), "--in", str(tmp_path / "pairs.jsonl")]) == 2
    assert "its base model 'results/models/small' is not here; name it with --base" in capsys.readouterr().err


# Equal is equal: scores do not depend on the order of the samples, and a percent is that percent in float32 and float16 too. Lines of
# tests/data/equal.jsonl; configurations of tests/data/odd_yaml.jsonl go through their reader.
LINES = {kind: [case for case in cases("equal") if case["kind"] == kind] for kind in ("order", "threshold", "metrics")}


def rescored(folder, records, method, *options):
    files.write_jsonl(folder / "in.jsonl", records)
    out = folder / "out.jsonl"
    assert main(["score", "--method", method, "--in", str(folder / "in.jsonl"), "--out", str(out), *options]) == 0
    return files.read_jsonl(out)


@pytest.mark.parametrize("case", LINES["order"], ids=lambda case: case["method"])
def test_the_order_of_the_samples_changes_no_bit(case, tmp_path):
    scored = rescored(tmp_path, [{"answers": answers} for answers in case["answers"]], case["method"])
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
        kept.append(
            [record["kept"] for record in rescored(tmp_path, given(asked, [1] * len(asked)), "given", *options)]
        )
    assert kept == [[True] * len(confidence)] * 3


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("case", LINES["metrics"])
def test_metrics_are_the_same(case, dtype, tmp_path):
    measured = []
    for values in (case["confidence"], short(case["confidence"], dtype, case.get("mixed", False))):
        rescored(tmp_path, given(values, case["correct"]), "given", "--metrics", str(tmp_path / "metrics.json"))
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
