"""Requests, cut into pieces: served together by one engine start, kept, and never computed again."""

import json

import pytest

from orce import work
from orce.runtime import files
from orce.runtime.files import BadInput
from orce.steps import answer, read
from orce.tasks import get


@pytest.fixture
def cell(tmp_path, monkeypatch, model_settings):
    """A folder with prompts, and a function that writes requests of one (arithmetic) cell."""
    monkeypatch.chdir(tmp_path)
    examples = get("arithmetic").load({}, "test")[:10]
    files.write_jsonl("results/arithmetic/prompts/test.jsonl", examples)
    shared = {
        "task": "arithmetic",
        "model": model_settings,
        "folder": "results/arithmetic/tiny",
        "prompts": {"test": "results/arithmetic/prompts/test.jsonl"},
        "engine": {"name": "transformers"},
        "seed": 1,
    }
    kinds = {
        "samples": {
            "kind": "samples", "samples": 3, "temperature": 1.0, "top_p": 1.0, "max_tokens": 4, "shots": 0,
        },
        "cot": {"kind": "asked", "max_tokens": 6},
        "vanilla": {"kind": "stated", "weights": None, "reader": "transformers", "samples": "results/arithmetic/tiny/samples.jsonl"},
    }  # fmt: skip

    def write(what, **changes):
        path = f"results/arithmetic/tiny/requests/{what}.json"
        files.write_json(path, shared | kinds[what] | {"what": what, "label": what} | changes)
        return path

    return write


def run(step, *requests, shard="0/1"):
    options = json.dumps({"chunk": 4, "batch_size": 4})
    import argparse

    parser = argparse.ArgumentParser()
    step.add_arguments(parser)
    step.run(parser.parse_args(["--requests", *requests, "--shard", shard, "--speed", options]))


def test_one_start_serves_requests_of_different_kinds(cell, capsys):
    requests = [cell("samples"), cell("cot")]
    run(answer, *requests)
    assert capsys.readouterr().err.count("starting the engine") == 1
    samples, cot = (work.records(work.load(path), 1) for path in requests)
    assert [len(record["answers"]) for record in samples] == [3] * 10
    assert all("greedy" in record for record in samples)
    assert {"id", "answer", "correct", "confidence", "raw"} <= set(cot[0])


def test_what_is_on_disk_starts_no_engine(cell, capsys):
    request = cell("samples")
    run(answer, request)
    before = work.records(work.load(request), 1)
    capsys.readouterr()
    run(answer, request)
    said = capsys.readouterr().err
    assert "already on disk" in said and "starting" not in said
    assert work.records(work.load(request), 1) == before


def test_shards_together_are_what_one_job_would_have_made(cell):
    request = cell("samples")
    run(answer, request)
    for shard in ("0/3", "1/3", "2/3"):
        run(answer, request, shard=shard)
    assert work.records(work.load(request), 3) == work.records(work.load(request), 1)


def test_a_changed_request_is_served_anew_and_the_old_piece_is_kept(cell, capsys):
    first = work.piece(work.load(cell("samples"))).path
    run(answer, cell("samples"))
    run(answer, cell("samples", seed=2))
    assert work.piece(work.load(cell("samples", seed=2))).path != first
    capsys.readouterr()
    run(answer, cell("samples", seed=1))
    assert "already on disk" in capsys.readouterr().err


def test_a_confidence_llm_reads_the_greedy_answers(cell):
    request = cell("samples")
    run(answer, request)
    samples = work.records(work.load(request), 1)
    files.write_jsonl("results/arithmetic/tiny/samples.jsonl", samples)
    stated = cell("vanilla")
    run(read, stated)
    records = work.records(work.load(stated), 1)
    assert [record["answer"] for record in records] == [sample["greedy"]["answer"] for sample in samples]
    assert all(0 <= record["mean"] <= 1 for record in records)


def test_a_missing_piece_is_an_error_that_says_who_makes_it(cell):
    with pytest.raises(BadInput, match=r"samples\.0-of-1\.\w+\.jsonl: not there; the job that serves the requests"):
        work.records(work.load(cell("samples")), 1)


def test_a_broken_request_is_named(tmp_path):
    path = tmp_path / "samples.json"
    path.write_text('{"kind": ')
    with pytest.raises(BadInput, match=r"samples\.json: not a request"):
        work.load(path)
