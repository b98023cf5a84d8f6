"""`orce show`: one question read aloud, and the largest errors of a row."""

import contextlib
import json
import shutil

import pytest
from conftest import ARITHMETIC
from dry_run import called
from finished_run import CELL

from orce.__main__ import main
from orce.artefacts import files, store
from orce.runtime import machine

pytestmark = pytest.mark.slow  # the small run trains a model


@pytest.fixture
def run(finished, tmp_path):
    """A copy of a small finished run, with two preference pairs and a second row of one's own confidences."""
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    with contextlib.chdir(folder):
        yield folder


def show(*words: str) -> str:
    code, said = called(main, ["show", *words])
    assert code == 0, said
    return said


def refusal(*words: str) -> str:
    code, said = called(main, ["show", str(CELL), *words])
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


def test_a_tested_question_shows_its_reply_what_was_read_and_every_confidence(run):
    asked = {record["id"]: record for record in store.read("results/arithmetic/prompts/test.jsonl")}
    for record in questions("test")[:3]:
        said = show(str(CELL), record["id"])
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
        assert f"sft: {confidence['confidence']:.2f} in" in lines_of(said, "confidence")[0]


def test_a_reply_is_shown_with_the_rule_that_read_it_where_the_file_says_it(run):
    records = store.read(CELL / "samples.jsonl")
    (record,) = [record for record in records if record["split"] == "test"][:1]
    rules = ["box: first", "task", None, "German: first"][: len(record["answers"])]
    record["read_by"] = rules
    record["greedy"]["read_by"] = "hashes: first"
    for made in CELL.glob("surrogate.*"):  # from the samples as they were
        made.unlink()
    store.write(CELL / "samples.jsonl", records)
    said = show(str(CELL), record["id"])
    assert lines_of(said, "read by") == ["'hashes: first'"]
    shown = ["read by 'box: first' from", "read by the task itself from", "read from", "read by 'German: first' from"]
    for line, how in zip(lines_of(said, "samples"), shown, strict=False):
        assert f", {how}: " in line
    for one in records:
        one.pop("read_by", None)
        one.get("greedy", {}).pop("read_by", None)
    store.write(CELL / "samples.jsonl", records)  # as an earlier version has made it
    said = show(str(CELL), record["id"])
    assert not lines_of(said, "read by") and "read by" not in said


def test_a_training_question_shows_its_realised_answer_and_the_statement_it_is_trained_on(run):
    for record in questions("sft")[:3]:
        said = show(str(CELL), record["id"])
        percent = 100 * sum(record["correct"]) / len(record["correct"])
        assert lines_of(said, "target") == [f"Confidence: {percent:.0f}"]  # no halves with four samples
        assert len(lines_of(said, "realised")) == 1
    assert lines_of(show(str(CELL), questions("rl")[0]["id"]), "target") == ["none: SFT learns from the split sft"]
    sealed = files.read_json(CELL / "sft/manifest.json")
    del sealed["manifest_digest"]
    sealed["settings"]["stage"]["target"] = "reversed"
    (CELL / "sft/manifest.json").write_text(json.dumps(sealed))
    assert lines_of(show(str(CELL), record["id"]), "target") == [f"Confidence: {100 - percent:.0f}"]


def test_an_id_in_two_splits_is_shown_in_each_with_its_own_kappa(run):
    samples = store.read(CELL / "samples.jsonl")
    first, last = samples[0], samples[-1]
    assert (first["split"], last["split"]) == ("sft", "test")
    twin = last | {"id": first["id"], "correct": [not right for right in first["correct"]]}
    store.write(CELL / "samples.jsonl", [*samples[:-1], twin])
    prompts = store.read("results/arithmetic/prompts/test.jsonl")
    store.write(
        "results/arithmetic/prompts/test.jsonl", [*prompts, prompts[0] | {"id": twin["id"]}], {"task": ARITHMETIC}
    )
    asked = {"samples": CELL / "samples.jsonl", "seed": 1, "out": CELL / "surrogate.csv"}
    assert main(["surrogate", *(word for name, value in asked.items() for word in (f"--{name}", str(value)))]) == 0
    said = show(str(CELL), first["id"])
    assert lines_of(said, "id") == [f"{first['id']}, split sft", f"{first['id']}, split test"]
    shares = [sum(record["correct"]) / len(record["correct"]) for record in (first, twin)]
    assert [line[:4] for line in lines_of(said, "kappa")] == [f"{share:.2f}" for share in shares]
    assert shares[0] != shares[1] and len(lines_of(said, "target")) == 1


def test_the_pairs_of_a_question_are_shown_with_their_reward_and_round(run):
    name = questions("rl")[0]["id"]
    turn = {"role": "assistant"}
    chosen, rejected = ([turn | {"content": f"Confidence: {percent}"}] for percent in (100, 0))
    pair = {"id": name, "prompt": [], "chosen": chosen, "rejected": rejected}
    store.write(CELL / "pairs" / "sc.jsonl", [pair])
    store.write(CELL / "round2" / "nrd" / "pairs" / "nrd.jsonl", [pair])
    assert lines_of(show(str(CELL), name), "pair") == [
        "Confidence: 100 before Confidence: 0 (sc)",
        "Confidence: 100 before Confidence: 0 (nrd, round2)",
    ]


def test_the_worst_are_the_largest_errors_and_a_tie_is_said(run):
    path = CELL / "sft/confidences.jsonl"
    records = store.read(path)
    for place, record in enumerate(records):
        record["confidence"] = [0.9, 0.9, None, 0.5][min(place, 3)]
        record["correct"] = place == 3
    store.write(path, records)
    said = show(str(CELL), "--worst", "1", "--method", "sft")
    assert f"the 1 largest |confidence - correct| of {len(records) - 1}; 1 more could not be read" in said
    assert "2 have an error of 0.90, in the order of the file" in said
    assert lines_of(said, "id") == [f"{records[0]['id']}, split test"]
    said = show(str(CELL), "--worst", "2", "--method", "sft")
    assert lines_of(said, "id") == [f"{record['id']}, split test" for record in records[:2]]
    assert "unread, from" in show(str(CELL), records[2]["id"])


def test_what_a_cell_does_not_have_is_one_line_that_says_what_it_has(run):
    assert "no question 'none'" in refusal("none")
    assert "no row 'sfd'; did you mean 'sft'? It has sft" in refusal("--worst", "1", "--method", "sfd")
    assert "--worst needs --method" in refusal("--worst", "1")
    assert "name questions by their ids, or the worst ones of a row" in refusal()
    assert "--worst is -1; expected a number of questions, from 1 on" in refusal("--worst", "-1", "--method", "sft")
    code, said = called(main, ["show", "results/arithmetic/smal", "x"])
    assert code == 2 and "no such folder; expected results/DATASET/MODEL of a finished run" in said
    with (CELL / "samples.jsonl").open("a") as samples:
        samples.write("{}\n")
    assert "samples.jsonl: " in refusal("16-2") and "to make it again" in refusal("16-2")


def test_a_cell_may_be_named_from_within_its_folder(run):
    asked = questions("test")[0]["id"]
    for folder, name in ((CELL, "."), (CELL.parent, CELL.name)):
        with contextlib.chdir(folder):
            assert lines_of(show(name, asked), "id") == [f"{asked}, split test"]


def test_what_a_model_wrote_cannot_move_the_cursor(run):
    samples = store.read(CELL / "samples.jsonl")
    samples[0]["raw"][0] = "\x1b[2Jgone"
    store.write(CELL / "samples.jsonl", samples)
    (CELL / "surrogate.csv").unlink()
    said = show(str(CELL), samples[0]["id"])
    assert "\x1b" not in said and "\ufffd[2Jgone" in said


def test_a_row_shows_what_it_is_made_of_back_to_the_questions_and_what_is_not_the_papers(run):
    said = show(str(CELL), "--provenance", "--method", "sft")
    files = lines_of(said, "file")
    names = [line.split(", ")[0] for line in files if not line.startswith(" ")]
    assert names[0] == f"{CELL}/sft/metrics.json"
    assert {f"{CELL}/sft", f"{CELL}/samples.jsonl", f"{CELL}/surrogate.csv", "results/arithmetic/prompts/sft.jsonl"} < {
        *names
    }
    digest = store.read_manifest(CELL / "sft/metrics.manifest.json")["sha256"]
    assert files[0].endswith(digest[:12])
    assert "evaluation.bootstrap: 50 (config.yaml: 10000)" in said
    assert "sft.learning_rate: 0.02 (config.yaml: 0.0001)" in said
    assert "sft.scheduler" not in said  # as the paper's
    assert f"trained on {machine.processor()}" in said and lines_of(said, "processor") == [machine.processor()]
    assert lines_of(said, "packages")[0].count("numpy") == 1


def test_a_row_of_a_file_that_is_gone_or_changed_has_no_provenance(run):
    line = refusal("--provenance", "--method", "orce")
    assert f"{CELL}/orce/metrics.json: no such file" in line
    with open(CELL / "surrogate.csv", "a") as file:
        file.write(" ")
    assert "surrogate.csv" in refusal("--provenance", "--method", "sft")
    (CELL / "surrogate.csv").unlink()
    assert "surrogate.csv: missing; " in refusal("--provenance", "--method", "sft")
    assert "--provenance needs --method" in refusal("--provenance")
    with contextlib.chdir(CELL.parent):
        code, said = called(main, ["show", CELL.name, "--provenance", "--method", "sft"])
    assert code == 2 and "sft/metrics.json: not a path from results/ on; expected results/DATASET/MODEL/ROW" in said
