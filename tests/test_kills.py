"""kill -9 at any moment, then the same command again: the same tables, without cleaning up, and little work done twice.

`python -m pytest tests/test_kills.py --kills 25 -s` kills more often than `make test` does.
"""

import json
import random
import re
import shutil
import subprocess
import time
from collections import Counter

import psutil
import pytest
import small_matrix

pytestmark = pytest.mark.slow


def alive(folder):
    """Processes that a run in this folder has started, orphans included."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(small_matrix.MARK) == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:  # ended meanwhile, or another user's
            continue
    return found


def kill_all(folder):
    while running := alive(folder):
        for process in running:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        time.sleep(0.05)


def kill(folder, process, alone):
    """kill -9 to Snakemake and all that it started, or to Snakemake alone. Says which it was."""
    process.kill()
    process.wait()
    if alone:
        return "Snakemake alone" if alive(folder) else "Snakemake, between jobs"
    kill_all(folder)
    return "everything"


def run_with_kills(folder, kills, longest, dice, expected):
    """Kill a run and start it again, `kills` times, and let it end. What ends before that begins anew.

    Returns the kinds of kills, and the number of whole runs.
    """
    done, runs = Counter(), 1
    while done.total() < kills:
        process = small_matrix.start(folder)
        try:
            code = process.wait(timeout=dice.uniform(0.5, longest))
        except subprocess.TimeoutExpired:
            done[kill(folder, process, alone=done.total() % 3 == 2)] += 1
            continue
        assert code == 0, (folder / "output.txt").read_text()[-6000:]
        assert results(folder) == expected
        kill_all(folder)
        for name in ("results", "paper_tables"):
            shutil.rmtree(folder / name)
        runs += 1
    small_matrix.finish(folder)
    return done, runs


def work(folder) -> Counter:
    """Items and optimizer steps that each step has computed, by its own progress lines, those done twice included."""
    last, computed = {}, Counter()
    for label, done in re.findall(r"^\[([^\]]+)\] (\d+)/\d+  ", (folder / "output.txt").read_text(), re.MULTILINE):
        computed[label] += max(0, int(done) - last.get(label, 0))
        last[label] = int(done)
    return computed


def results(folder):
    """Bytes of the tables, and the metrics without their provenance (seconds of computing, digests of what has them)."""
    tables = {path.name: path.read_bytes() for path in (folder / "paper_tables").iterdir() if path.suffix != ".pdf"}
    metrics = {}
    for path in (folder / "results").glob("*/*/*/metrics.json"):
        metrics[str(path.relative_to(folder))] = json.loads(path.read_text())
        del metrics[str(path.relative_to(folder))]["provenance"]
    return tables, metrics


@pytest.fixture
def killed(tmp_path):
    """A folder for the run; ends what a failed test left running."""
    yield tmp_path
    kill_all(tmp_path)


def test_a_run_killed_at_random_moments_ends_with_the_same_tables(killed, letters, straight, request):
    small_matrix.write(killed, *small_matrix.configuration(letters))
    seconds = float((straight / small_matrix.TIME).read_text())
    expected = results(straight)
    kills = request.config.getoption("--kills")
    done, runs = run_with_kills(killed, kills, seconds / 5, random.Random(25), expected)
    tables, metrics = results(killed)
    assert (tables, metrics) == expected
    assert {"main.tex", "tables.tex", "comparison.csv", "tables.html"} <= set(tables)
    assert len(metrics) == 7
    assert not list(killed.rglob("*.tmp"))
    once, computed = work(straight), work(killed)
    assert set(computed) == set(once)
    ratio = computed.total() / (runs * once.total())
    print(f"\n{kills} kills in {runs} run(s) of {seconds:.0f} s: {dict(done)}")
    print(f"items and steps computed: {computed.total()} instead of {runs} x {once.total()} ({ratio:.2f})")
