"""Files: whole or not at all, resumed after a kill, and one clear error for a bad one."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import PROGRAMS, program, with_peak

from orce.__main__ import main
from orce.artefacts import files, store
from orce.config import same_settings
from orce.errors import BadInput

OUT = "out.jsonl"


@pytest.fixture(autouse=True)
def run(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_failed_writer_leaves_the_old_file_and_only_dead_ones_are_swept_up(run):
    path = run / "out.json"
    files.write_json(path, {"old": True})
    with pytest.raises(TypeError):
        files.write_json(path, {"new": object()})
    assert json.loads(path.read_text()) == {"old": True} and os.listdir() == ["out.json"]
    assert program(sys.executable, PROGRAMS, "killed_half_way", path).returncode == -signal.SIGKILL
    assert sorted(left.suffix for left in run.iterdir()) == [".json", ".tmp"]
    living = path.with_name(f".{path.name}.1.tmp")
    with open(living, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_SH)
        files.write_json(path, {"whole": True})
    assert sorted(os.listdir()) == [living.name, path.name] and json.loads(path.read_text()) == {"whole": True}


def run_chunks(out, done_before_stop=None, tag="tag") -> list[int]:
    """The items that are worked on."""
    log = []

    def work(chunk):
        if done_before_stop is not None and chunk[0] >= done_before_stop:
            raise KeyboardInterrupt
        log.extend(chunk)
        return [{"id": item, "square": item * item} for item in chunk]

    with contextlib.suppress(KeyboardInterrupt):
        list(files.in_chunks(out, list(range(18)), 4, tag, work))
    return log


def test_a_resumed_run_does_only_what_is_left_and_ends_with_the_same_bytes(run):
    run_chunks("straight.jsonl")
    assert run_chunks("again.jsonl", done_before_stop=8) == list(range(8)) and not Path("again.jsonl").exists()
    (_, chunk) = sorted(Path(".partial/again.jsonl.tag").glob("*.jsonl"))
    torn = chunk.with_name(chunk.name.replace("000000004-", "000000008-"))
    torn.write_text('{"id": 8, "square": 64}\n{"id": 9, "squ')
    assert run_chunks("again.jsonl") == list(range(8, 18)), "a torn chunk is done again"
    assert Path("again.jsonl").read_bytes() == Path("straight.jsonl").read_bytes()
    assert run_chunks("again.jsonl") == []
    assert sorted(os.listdir()) == [".partial", "again.jsonl", "straight.jsonl"]
    assert run_chunks("again.jsonl", tag="other") == list(range(18)), "of another setting nothing is used"


def test_of_two_that_wait_for_a_file_one_has_it_even_when_its_holder_deletes_it_and_its_folder(run):
    """Snakemake alone was killed: the orphan ends and tidies up just as the new job opens the same lock."""
    path, inside = run / "folder" / "lock", []

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


def slow() -> subprocess.Popen:
    return subprocess.Popen([sys.executable, PROGRAMS, "slow_chunks", OUT], stderr=subprocess.PIPE, text=True)


def test_kill_minus_nine_at_any_moment_loses_at_most_one_chunk():
    log, kills = Path(f"{OUT}.log"), 0
    log.touch()
    for delay in (0, 0.01, 0.03, 0.05, 0.07, 0.04):
        begun, process = log.stat().st_size, slow()
        while process.poll() is None and log.stat().st_size == begun:
            time.sleep(0.001)
        time.sleep(delay)
        process.kill()
        kills += process.wait() == -signal.SIGKILL
    assert slow().wait() == 0 and kills >= 3
    chunks = log.read_text().split()
    assert len({*chunks}) == 30 < len(chunks) <= 30 + kills
    assert [record["id"] for record in files.read_jsonl(OUT)] == list(range(60))


@pytest.mark.parametrize("kill_first", [False, True])
def test_a_second_run_of_a_job_waits_for_the_first_and_does_only_what_that_left(kill_first):
    first, log = slow(), Path(f"{OUT}.log")
    while not log.exists():
        time.sleep(0.01)
    second = slow()
    said = second.stderr.readline()
    assert f"is being written by another process (process {first.pid}): waiting until it ends" in said
    assert OUT in said and "\n" not in said.strip()
    if kill_first:
        first.kill()
    assert first.wait() == (-signal.SIGKILL if kill_first else 0) and second.wait() == 0
    chunks = [int(line) for line in log.read_text().split()]
    assert sorted({*chunks}) == list(range(0, 60, 2)) and len(chunks) <= 30 + kill_first
    assert [record["id"] for record in files.read_jsonl(OUT)] == list(range(60))


def test_the_chunks_of_a_run_that_goes_on_are_not_deleted_by_another_one(capfd):
    mine, its = (files.partial_folder(OUT) / f"{OUT}.{tag}" for tag in ("mine", "its"))
    for chunks in (mine, its):
        chunks.mkdir()
        (chunks / "000000000-1-0a.jsonl").write_text("{}\n")
    with files.exclusive_lock(its / "lock"):
        files.forget_chunks(OUT)
        assert f"{its} stays: process {os.getpid()} works on it" in capfd.readouterr().err
        assert not mine.exists() and len([*its.glob("*.jsonl")]) == 1
    files.forget_chunks(OUT)
    assert not its.parent.exists()


def test_folders_are_replaced_whole_links_followed_devices_and_pipes_never_replaced(run):
    for version in ("old", "new"):
        work = run / "work"
        work.mkdir()
        (work / version).write_text(version)
        files.publish_folder(work, run / "final")
    assert os.listdir("final") == ["new"] and os.listdir() == ["final"]
    (run / "link").symlink_to(run / "there.json")
    files.write_json(run / "link", {"a": 1})
    assert (run / "link").is_symlink() and (run / "there.json").is_file()
    os.mkfifo("pipe")
    for path in (run / "pipe", "/dev/full", run / "final"):
        refused = f"{path}: not a regular file; a result needs the name of a file"
        with pytest.raises(BadInput, match=refused):
            files.write_json(path, {"a": 1})
        with pytest.raises(BadInput, match=refused):
            next(files.in_chunks(path, [1], 1, "tag", lambda chunk: [{} for _ in chunk]))
    with pytest.raises(BadInput, match="pipe: is a file, and the output is a folder"):
        files.publish_folder(run / "final", run / "pipe")
    assert sorted(os.listdir()) == ["final", "link", "pipe", "there.json"] and os.listdir("final") == ["new"]
    assert (run / "pipe").is_fifo() and Path("/dev/full").is_char_device()


def test_shards_are_joined_a_line_at_a_time():
    records, shards = [{"id": i, "text": "x" * 2000} for i in range(3000)], ["0.jsonl", "1.jsonl", "2.jsonl"]
    for i, path in enumerate(shards):
        first, *others = records[i::3]
        files.write_jsonl(path, [first | {"spent": {"requests": 2}}, *others])
        store.seal(path)
    code, peak = with_peak(main, ["gather", "--shards", *shards, "--out", OUT])
    assert code == 0 and [one["id"] for one in files.read_jsonl(OUT)] == list(range(3000))
    assert store.read_manifest("out.manifest.json")["spent"] == {"requests": 6}
    assert peak < os.stat(OUT).st_size / 3, "the shards are not in memory"


RECORDS = [{"id": "a", "text": "ä"}, {"id": "b", "text": "\u2028"}]
SAMPLES, HERE = Path("results/sums/small/samples.jsonl"), Path("results/sums/small/orce/confidences.jsonl")


def test_a_file_is_refused_once_its_inputs_or_its_rule_are_others():
    settings, inputs = {"seed": 1, "dpo": {"beta": 0.1}}, [str(SAMPLES)]
    store.write(SAMPLES, RECORDS)
    with store.recording_inputs():
        store.read(SAMPLES)
        store.write(HERE, RECORDS, settings)
    assert store.manifest_facts(HERE)["inputs"] == {str(SAMPLES): files.file_digest(SAMPLES)}

    def differing(settings: dict, inputs: list[str]) -> list[str]:
        rule = same_settings.Rule(json.dumps(settings), inputs, [str(HERE)])
        return same_settings.otherwise_made({str(HERE): [rule]}, "stated").get(str(HERE), [])

    assert differing(settings, inputs) == []
    assert differing(settings | {"dpo": {"beta": 0.3}}, inputs) == ["dpo.beta: 0.1, now 0.3"]
    assert differing(settings | {"bootstrap": 9}, inputs) == ["bootstrap: None, now 9"]
    surrogate = str(SAMPLES.with_name("surrogate.csv"))
    assert differing(settings, [*inputs, surrogate]) == [f"made without {surrogate}"]
    assert differing(settings, []) == [f"made from {SAMPLES} too"]
    store.write(SAMPLES, RECORDS[::-1])
    assert differing(settings, inputs) == [f"made from another {SAMPLES} than there is now"]
    with pytest.raises(BadInput, match=rf"{HERE}: was made from another {SAMPLES} than there is now"):
        store.read(HERE)
    store.write(SAMPLES, RECORDS)  # again, with the same bytes
    assert store.read(HERE, ("id",)) == store.read(Path.cwd() / HERE) == RECORDS
    SAMPLES.unlink()
    store.manifest_path(SAMPLES).unlink()  # no longer kept
    assert store.read(HERE) == RECORDS
    store.manifest_path(HERE).unlink()
    assert differing(settings, inputs) == ["no seal"]


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
def test_a_writer_that_is_killed_leaves_no_file_without_its_manifest(at):
    assert program(sys.executable, PROGRAMS, "killed_write", at).returncode < 0
    assert not SAMPLES.exists()
    store.write(SAMPLES, [{"id": 1}])
    assert store.read(SAMPLES) == [{"id": 1}]
