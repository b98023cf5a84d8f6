"""`orce show`: one question read aloud, and the largest errors of a row."""

import contextlib
import json
import shutil

import pytest
from conftest import ARITHMETIC
from dry_run import called
from finished_run import CELL, TEST, step

from orce.__main__ import main
from orce.artefacts import files, store
from orce.runtime import machine

pytestmark = pytest.mark.slow  # the small run trains a model


@pytest.fixture(autouse=True)
def run(finished, folder):
    shutil.copytree(finished, folder, dirs_exist_ok=True)


def show(*words: str, cell=CELL) -> str:
    code, said = called(main, ["show", str(cell), *words])
    assert code == 0, said
    return said


def refusal(*words: str, cell=CELL) -> str:
    code, said = called(main, ["show", str(cell), *words])
    assert code == 2 and said.count("\n") == 1, said
    return said


def lines_of(said: str, title: str) -> list[str]:
    """The texts under a title, its further lines among them."""
    found, current = [], ""
    for line in said.splitlines():
        current = line[:12].strip() or current
        if line and current == title:
            found.append(line[12:])
    return found


def questions(split: str) -> list[dict]:
    return [record for record in files.read_jsonl(CELL / "samples.jsonl") if record["split"] == split]


def test_a_tested_question_shows_its_reply_what_was_read_and_every_confidence():
    asked = {record["id"]: record for record in store.read("results/arithmetic/prompts/test.jsonl")}
    for record in questions("test")[:3]:
        said = show(record["id"])
        verdict = "right" if record["greedy"]["correct"] else "wrong"
        assert lines_of(said, "id") == [f"{record['id']}, split test"]
        assert lines_of(said, "question") == asked[record["id"]]["question"].splitlines()
        assert lines_of(said, "reply") == [" ".join(record["greedy"]["raw"].split())]
        assert lines_of(said, "answer") == [f"{record['greedy']['answer'] or 'unread'}: {verdict}"]
        assert lines_of(said, "reference") == [asked[record["id"]]["reference"]]
        assert len(lines_of(said, "samples")) == len(record["answers"])
        share = sum(record["correct"]), len(record["correct"])
        assert lines_of(said, "kappa") == [f"{share[0] / share[1]:.2f}, {share[0]} of {share[1]} samples are right"]
        (confidence,) = (one for one in store.read(CELL / "sft/confidences.jsonl") if one["id"] == record["id"])
        assert f"sft: {confidence['confidence']:.3f} in" in lines_of(said, "confidence")[0]
    for folder, name in ((CELL, "."), (CELL.parent, CELL.name)):
        with contextlib.chdir(folder):
            assert show(record["id"], cell=name) == said.replace(f"{CELL}", name)


def test_a_reply_is_shown_with_the_rule_that_read_it_where_the_file_says_it():
    records = store.read(CELL / "samples.jsonl")
    record = next(record for record in records if record["split"] == "test")
    assert "read by" not in show(record["id"])
    record["read_by"] = ["box: first", "task", None, "German: first"]
    record["greedy"]["read_by"] = "hashes: first"
    for made in CELL.glob("surrogate.*"):  # from the samples as they were
        made.unlink()
    store.write(CELL / "samples.jsonl", records)
    said = show(record["id"])
    assert lines_of(said, "read by") == ["'hashes: first'"]
    shown = ["read by 'box: first' from", "read by the task itself from", "read from", "read by 'German: first' from"]
    for line, how in zip(lines_of(said, "samples"), shown, strict=True):
        assert f", {how}: " in line


def test_a_training_question_shows_its_realised_answer_and_the_statement_it_is_trained_on():
    for record in questions("sft")[:3]:
        said = show(record["id"])
        percent = 100 * sum(record["correct"]) / len(record["correct"])
        assert lines_of(said, "target") == [f"Confidence: {percent:.0f}"]  # no halves with four samples
        assert len(lines_of(said, "realised")) == 1
    assert lines_of(show(questions("rl")[0]["id"]), "target") == ["none: SFT learns from the split sft"]
    sealed = files.read_json(CELL / "sft/manifest.json")
    del sealed["manifest_digest"]
    sealed["settings"]["stage"]["target"] = "reversed"
    (CELL / "sft/manifest.json").write_text(json.dumps(sealed))
    assert lines_of(show(record["id"]), "target") == [f"Confidence: {100 - percent:.0f}"]


def test_an_id_in_two_splits_is_shown_in_each_with_its_own_kappa():
    samples = store.read(CELL / "samples.jsonl")
    first, last = samples[0], samples[-1]
    assert (first["split"], last["split"]) == ("sft", "test")
    twin = last | {"id": first["id"], "correct": [not right for right in first["correct"]]}
    store.write(CELL / "samples.jsonl", [*samples[:-1], twin])
    prompts = store.read(TEST)
    store.write(TEST, [*prompts, prompts[0] | {"id": twin["id"]}], {"task": ARITHMETIC})
    step("surrogate", samples=CELL / "samples.jsonl", seed=1, out=CELL / "surrogate.csv")
    said = show(first["id"])
    assert lines_of(said, "id") == [f"{first['id']}, split sft", f"{first['id']}, split test"]
    shares = [sum(record["correct"]) / len(record["correct"]) for record in (first, twin)]
    assert [line[:4] for line in lines_of(said, "kappa")] == [f"{share:.2f}" for share in shares]
    assert shares[0] != shares[1] and len(lines_of(said, "target")) == 1


def test_the_pairs_of_a_question_are_shown_with_their_reward_and_round():
    name = questions("rl")[0]["id"]
    turn = {"role": "assistant"}
    chosen, rejected = ([turn | {"content": f"Confidence: {percent}"}] for percent in (100, 0))
    pair = {"id": name, "prompt": [], "chosen": chosen, "rejected": rejected}
    store.write(CELL / "pairs" / "sc.jsonl", [pair])
    store.write(CELL / "round2" / "nrd" / "pairs" / "nrd.jsonl", [pair])
    assert lines_of(show(name), "pair") == [
        "Confidence: 100 before Confidence: 0 (sc)",
        "Confidence: 100 before Confidence: 0 (nrd, round2)",
    ]


def test_the_worst_are_the_largest_errors_and_a_tie_is_said():
    path = CELL / "sft/confidences.jsonl"
    records = store.read(path)
    for place, record in enumerate(records):
        record["confidence"] = [0.3, 0.7, None, 0.0004][min(place, 3)]  # 1 - 0.7 is 0.30000000000000004
        record["correct"] = place == 1
    store.write(path, records)
    said = show("--worst", "1", "--method", "sft")
    assert f"the 1 largest |confidence - correct| of {len(records) - 1}; 1 more could not be read" in said
    assert "2 have an error of 0.30, in the order of the file" in said
    assert lines_of(said, "id") == [f"{records[0]['id']}, split test"]
    said = show("--worst", "2", "--method", "sft")
    assert lines_of(said, "id") == [f"{record['id']}, split test" for record in records[:2]]
    assert "unread, from" in show(records[2]["id"]) and "sft: 4.0e-04 in" in show(records[3]["id"])


def test_what_a_cell_does_not_have_is_one_line_that_says_what_it_has():
    assert "no question 'none'" in refusal("none")
    assert "no row 'sfd'; did you mean 'sft'? It has sft" in refusal("--worst", "1", "--method", "sfd")
    assert "--worst needs --method" in refusal("--worst", "1")
    assert "name questions by their ids, or the worst ones of a row" in refusal()
    assert "--worst is -1; expected a number of questions, from 1 on" in refusal("--worst", "-1", "--method", "sft")
    assert "no such folder; expected results/DATASET/MODEL of a finished run" in refusal("x", cell=f"{CELL}s")
    with (CELL / "samples.jsonl").open("a") as samples:
        samples.write("{}\n")
    assert "samples.jsonl: " in refusal("16-2") and "to make it again" in refusal("16-2")


def test_a_row_shows_what_it_is_made_of_back_to_the_questions_and_what_is_not_the_papers():
    said = show("--provenance", "--method", "sft")
    made_from = [line for line in lines_of(said, "file") if not line.startswith(" ")]
    digest = store.read_manifest(CELL / "sft/metrics.manifest.json")["sha256"]
    assert made_from[0] == f"{CELL}/sft/metrics.json, {digest[:12]}"
    expected = {f"{CELL}/sft", f"{CELL}/samples.jsonl", f"{CELL}/surrogate.csv", "results/arithmetic/prompts/sft.jsonl"}
    assert {line.split(", ")[0] for line in made_from} > expected
    assert "evaluation.bootstrap: 50 (config.yaml: 10000)" in said
    assert "sft.learning_rate: 0.02 (config.yaml: 0.0001)" in said
    assert "sft.scheduler" not in said  # as the paper's
    assert f"trained on {machine.processor()}" in said and lines_of(said, "processor") == [machine.processor()]
    assert all(lines_of(said, "packages")[0].count(name) == 1 for name in ("numpy", "trl", "math-verify"))


def test_a_row_of_a_file_that_is_gone_or_changed_has_no_provenance():
    assert "--provenance needs --method" in refusal("--provenance")
    assert f"{CELL}/orce/metrics.json: no such file" in refusal("--provenance", "--method", "orce")
    with open(CELL / "surrogate.csv", "a") as file:
        file.write(" ")
    assert "surrogate.csv" in refusal("--provenance", "--method", "sft")
    (CELL / "surrogate.csv").unlink()
    assert "surrogate.csv: missing; " in refusal("--provenance", "--method", "sft")
    with contextlib.chdir(CELL.parent):
        said = refusal("--provenance", "--method", "sft", cell=CELL.name)
    assert "sft/metrics.json: not a path from results/ on; expected results/DATASET/MODEL/ROW" in said
