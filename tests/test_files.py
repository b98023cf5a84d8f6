"""Files: whole or not at all, resumed after a kill, and one clear error for a bad one."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import PROGRAMS, program

from orce.__main__ import main
from orce.artefacts import files, store
from orce.config import same_settings
from orce.errors import BadInput


def test_an_output_that_fails_half_way_leaves_the_old_one(tmp_path):
    path = tmp_path / "out.json"
    files.write_json(path, {"old": True})
    with pytest.raises(TypeError):
        files.write_json(path, {"new": object()})
    assert json.loads(path.read_text()) == {"old": True}
    assert os.listdir(tmp_path) == ["out.json"]


def test_what_a_killed_writer_leaves_is_swept_and_a_living_writer_is_not(tmp_path):
    path = tmp_path / "out.json"
    assert program(sys.executable, PROGRAMS, "killed_half_way", path).returncode == -signal.SIGKILL
    assert [left.suffix for left in tmp_path.iterdir()] == [".tmp"]
    living = path.with_name(f".{path.name}.1.tmp")
    with open(living, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_SH)
        files.write_json(path, {"whole": True})
    assert sorted(left.name for left in tmp_path.iterdir()) == [living.name, path.name]


def run_chunks(out, n, done_before_stop=None, tag="tag") -> list[int]:
    """The items that are worked on."""
    log = []

    def work(chunk):
        if done_before_stop is not None and chunk[0] >= done_before_stop:
            raise KeyboardInterrupt
        log.extend(chunk)
        return [{"id": item, "square": item * item} for item in chunk]

    list(files.in_chunks(out, list(range(n)), 4, tag, work))
    return log


def test_a_resumed_run_does_only_what_is_left_and_ends_with_the_same_bytes(tmp_path):
    run_chunks(tmp_path / "straight.jsonl", 18)
    with pytest.raises(KeyboardInterrupt):
        run_chunks(tmp_path / "again.jsonl", 18, done_before_stop=8)
    assert not (tmp_path / "again.jsonl").exists()
    assert run_chunks(tmp_path / "again.jsonl", 18) == list(range(8, 18))
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "straight.jsonl").read_bytes()
    run_chunks(tmp_path / "again.jsonl", 18)
    assert sorted(os.listdir(tmp_path)) == [".partial", "again.jsonl", "straight.jsonl"]


def test_of_two_that_wait_for_a_file_one_has_it_even_when_its_holder_deletes_it_and_its_folder(tmp_path):
    """Snakemake alone was killed: the orphan ends and tidies up just as the new job opens the same lock."""
    path, inside = tmp_path / "folder" / "lock", []

    def take_and_tidy(_):
        for _ in range(200):
            with files.exclusive_lock(path):
                inside.append(1)
                time.sleep(1e-4)
                assert inside == [1]
                inside.pop()
                shutil.rmtree(path.parent, ignore_errors=True)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(take_and_tidy, range(4))) == [None] * 4


def test_a_torn_last_line_and_an_unfinished_chunk_are_done_again_and_another_setting_reuses_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_chunks(tmp_path / "out.jsonl", 10, done_before_stop=4)
    assert run_chunks(tmp_path / "out.jsonl", 10, tag="other") == list(range(10))
    with pytest.raises(KeyboardInterrupt):
        run_chunks(tmp_path / "torn.jsonl", 10, done_before_stop=4)
    (chunk,) = (tmp_path / ".partial" / "torn.jsonl.tag").glob("*.jsonl")
    torn = chunk.with_name(chunk.name.replace("000000000-", "000000004-"))
    torn.write_text('{"id": 4, "square": 16}\n{"id": 5, "squ')
    assert run_chunks(tmp_path / "torn.jsonl", 10) == list(range(4, 10))


def slow(out):
    return subprocess.Popen([sys.executable, PROGRAMS, "slow_chunks", str(out)], stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_kill_minus_nine_at_any_moment_loses_at_most_one_chunk(tmp_path):
    out = tmp_path / "out.jsonl"
    kills = 0
    for delay in (0.15, 0.25, 0.2, 0.3, 0.35, 0.3):
        process = slow(out)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
    assert slow(out).wait() == 0
    assert kills >= 3
    assert [record["id"] for record in files.read_jsonl(out)] == list(range(60))


@pytest.mark.parametrize("kill_first", [False, True])
def test_a_second_run_of_a_job_waits_for_the_first_and_does_only_what_that_left(tmp_path, kill_first):
    out = tmp_path / "out.jsonl"
    first = slow(out)
    while not (tmp_path / "out.jsonl.log").exists():
        time.sleep(0.01)
    second = slow(out)
    said = second.stderr.readline()
    assert f"is being written by another process (process {first.pid}): waiting until it ends" in said
    assert "out.jsonl" in said and "\n" not in said.strip()
    if kill_first:
        first.kill()
    assert first.wait() == (-signal.SIGKILL if kill_first else 0)
    assert second.wait() == 0
    chunks = [int(line) for line in (tmp_path / "out.jsonl.log").read_text().split()]
    assert chunks == list(range(0, 60, 2)) or (kill_first and sorted(set(chunks)) == list(range(0, 60, 2)))
    assert len(chunks) <= 30 + kill_first
    assert [record["id"] for record in files.read_jsonl(out)] == list(range(60))


def test_the_chunks_of_a_run_that_goes_on_are_not_deleted_by_another_one(tmp_path, capfd):
    out = tmp_path / "out.jsonl"
    mine, its = (files.partial_folder(out) / f"out.jsonl.{tag}" for tag in ("mine", "its"))
    for chunks in (mine, its):
        chunks.mkdir()
        (chunks / "000000000-1-0a.jsonl").write_text("{}\n")
    with files.exclusive_lock(its / "lock"):
        files.forget_chunks(out)
        assert f"{its} stays: process {os.getpid()} works on it" in capfd.readouterr().err
        assert not mine.exists() and len([*its.glob("*.jsonl")]) == 1
    files.forget_chunks(out)
    assert not its.parent.exists()


def test_a_folder_replaces_an_older_one_whole(tmp_path):
    for version in ("old", "new"):
        work = tmp_path / "work"
        work.mkdir()
        (work / version).write_text(version)
        files.publish_folder(work, tmp_path / "final")
    assert os.listdir(tmp_path / "final") == ["new"]
    assert os.listdir(tmp_path) == ["final"]


def test_a_link_is_followed(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "there.json")
    files.write_json(link, {"a": 1})
    assert link.is_symlink() and (tmp_path / "there.json").exists()


def test_a_device_or_a_pipe_is_refused_and_never_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refused = "not a regular file; a result needs the name of a file"
    for path in (tmp_path / "pipe", "/dev/full"):
        with pytest.raises(BadInput, match=f"{path}: {refused}"):
            files.write_json(path, {"a": 1})
        with pytest.raises(BadInput, match=f"{path}: {refused}"):
            next(files.in_chunks(path, [1], 1, "tag", lambda chunk: [{} for _ in chunk]))
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]
    (tmp_path / "work").mkdir()
    with pytest.raises(BadInput, match="pipe: is a file, and the output is a folder"):
        files.publish_folder(tmp_path / "work", tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo() and Path("/dev/full").is_char_device()


def test_shards_are_joined_a_line_at_a_time(tmp_path):
    records = [{"id": i, "text": "x" * 2000} for i in range(3000)]
    shards = [tmp_path / f"s-{i}.jsonl" for i in range(3)]
    for i, path in enumerate(shards):
        first, *others = records[i::3]
        files.write_jsonl(path, [first | {"spent": {"requests": 2}}, *others])
        store.seal(path)
    out = tmp_path / "out.jsonl"
    tracemalloc.start()
    try:
        assert main(["gather", "--shards", *map(str, shards), "--out", str(out)]) == 0
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [one["id"] for one in files.read_jsonl(out)] == list(range(3000))
    assert store.read_manifest(tmp_path / "out.manifest.json")["spent"] == {"requests": 6}
    assert peak < out.stat().st_size / 3, "the shards are not in memory"


RECORDS = [{"id": "a", "text": "ä"}, {"id": "b", "text": "\u2028"}]
HERE = Path("results/sums/small/orce/confidences.jsonl")


@pytest.fixture(autouse=True)
def run(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_is_refused_once_its_inputs_are_others():
    samples = Path("results/sums/small/samples.jsonl")
    store.write(samples, RECORDS)
    with store.recording_inputs():
        store.read(samples)
        store.write(HERE, RECORDS)
    assert store.manifest_facts(HERE)["inputs"] == {str(samples): files.file_digest(samples)}
    store.write(samples, RECORDS[::-1])
    with pytest.raises(BadInput, match=rf"{HERE}: was made from another {samples} than there is now"):
        store.read(HERE)
    store.write(samples, RECORDS)  # again, with the same bytes
    assert store.read(HERE, ("id",)) == store.read(Path.cwd() / HERE) == RECORDS
    samples.unlink()
    store.manifest_path(samples).unlink()  # no longer kept
    assert store.read(HERE) == RECORDS


def test_a_kept_file_is_compared_with_what_its_rule_would_make_today():
    samples, kept = Path("results/sums/small/samples.jsonl"), str(HERE)
    store.write(samples, RECORDS)
    with store.recording_inputs():
        store.read(samples)
        store.write(HERE, RECORDS, {"seed": 1, "dpo": {"beta": 0.1}})

    def differing(settings: dict, inputs: list[str]) -> list[str]:
        rule = same_settings.Rule(json.dumps(settings), inputs, [kept])
        return same_settings.otherwise_made({kept: [rule]}, "stated").get(kept, [])

    same = {"seed": 1, "dpo": {"beta": 0.1}}
    assert differing(same, [str(samples)]) == []
    assert differing(same | {"dpo": {"beta": 0.3}}, [str(samples)]) == ["dpo.beta: 0.1, now 0.3"]
    assert differing(same | {"bootstrap": 9}, [str(samples)]) == ["bootstrap: None, now 9"]
    surrogate = str(samples.with_name("surrogate.csv"))
    assert differing(same, [str(samples), surrogate]) == [f"made without {surrogate}"]
    assert differing(same, []) == [f"made from {samples} too"]
    store.write(samples, RECORDS[:1])
    assert differing(same, [str(samples)]) == [f"made from another {samples} than there is now"]
    store.manifest_path(HERE).unlink()
    assert differing(same, [str(samples)]) == ["no seal"]


def test_a_changed_file_is_refused_also_under_a_seal_of_an_earlier_version():
    files.write_jsonl(HERE, RECORDS)
    old = {"file": HERE.name, "sha256": files.file_digest(HERE), "n": 2}
    store.write_manifest(store.manifest_path(HERE), old)
    assert store.read(HERE) == RECORDS
    for changed, said in ((RECORDS[:1], "has 1 lines, and 2 were written"), (RECORDS[::-1], "changed since")):
        files.write_jsonl(HERE, changed)
        with pytest.raises(BadInput, match=said):
            store.read(HERE)


@pytest.mark.parametrize("at", ["samples.manifest.json", "samples.jsonl"])
def test_a_writer_that_is_killed_leaves_no_file_without_its_manifest(run, at):
    assert program(sys.executable, PROGRAMS, "killed_write", at).returncode < 0
    assert not (run / "results/sums/small/samples.jsonl").exists()
    store.write("results/sums/small/samples.jsonl", [{"id": 1}])
    assert store.read("results/sums/small/samples.jsonl") == [{"id": 1}]
