"""A process of a stage: its progress on a terminal and in a log; and kill -9 at any moment, then the same command again: the same
bytes in every published file, and little work done twice.

`python -m pytest tests/test_kills.py --kills 25 -s` kills more often than `make test` does.
"""

import contextlib
import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter

import psutil
import pytest
import small_matrix
from conftest import PROGRAMS, ROOT
from small_matrix import marked, published


def alive(folder):
    """Processes that a run in this folder has started, orphans included."""
    return marked(small_matrix.MARK, folder)


def kill_all(folder):
    while running := alive(folder):
        for process in running:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        time.sleep(0.05)


def steps(folder):
    """The steps at work: Python processes that a rule's command has started."""
    found = []
    for process in alive(folder):
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[1:3] == ["-m", "orce"]:
                found.append(process)
    return found


def kill_snakemake(folder, process, dice):
    """Its jobs live on, and the next run meets them."""
    process.kill()
    process.wait()
    return bool(alive(folder))


def kill_step(folder, process, dice):
    """Snakemake sees a failed job and ends by itself."""
    running = steps(folder)
    if running:
        with contextlib.suppress(psutil.NoSuchProcess):
            dice.choice(running).kill()
    else:
        process.kill()
    process.wait()
    kill_all(folder)
    return bool(running)


def kill_group(folder, process, dice):
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kill_all(folder)
    return True


def kill_in_a_write(folder, process, dice):
    """All of them, at the first moment at which a step has a file half written; None if the run ended before that."""
    end = time.monotonic() + 10
    writing = False
    while process.poll() is None and time.monotonic() < end and not writing:
        writing = half_written(folder)
    if process.poll() is not None:
        return None
    kill_group(folder, process, dice)
    return writing


def half_written(folder) -> bool:
    """Whether a step has a file half written. A folder may go while it is searched, as a checkpoint's does."""
    with contextlib.suppress(FileNotFoundError):
        return any(folder.glob("results/**/*.tmp"))
    return False


KILLS = {
    "the process group": kill_group,
    "Snakemake alone": kill_snakemake,
    "one step": kill_step,
    "during a write": kill_in_a_write,
}


def run_with_kills(folder, kills, longest, dice, expected):
    """Kill a run and start it again, `kills` times, and let it end. What ends before that begins anew.

    Returns the kinds of kills, and the number of whole runs.
    """
    done, runs, kinds = Counter(), 1, itertools.cycle(KILLS)
    while done.total() < kills:
        process = small_matrix.start(folder)
        try:
            code = process.wait(timeout=dice.uniform(0.5, longest))
        except subprocess.TimeoutExpired:
            kind = next(kinds)
            met = KILLS[kind](folder, process, dice)
            if met is not None:
                done[kind if met else "between jobs"] += 1
                print(f"{done.total()} of {kills} kills", flush=True)
            continue
        assert code == 0, (folder / "output.txt").read_text()[-6000:]
        kill_all(folder)  # what lives on would delete its folders while they are searched
        assert_same(published(folder), expected)
        for name in ("results", "paper_tables"):
            shutil.rmtree(folder / name)
        runs += 1
    small_matrix.finish(folder)
    return done, runs


def work(folder) -> Counter:
    """Items and optimizer steps that each step has computed, by its own progress lines, those done twice included."""
    last, computed = {}, Counter()
    # A line may follow another job's unfinished line, so none is taken to begin at its margin.
    for label, done in re.findall(r"\[([^\]\n]+)\] (\d+)/\d+  ", (folder / "output.txt").read_text()):
        computed[label] += max(0, int(done) - last.get(label, 0))
        last[label] = int(done)
    return computed


def assert_same(files, expected):
    assert files.keys() == expected.keys()
    assert [name for name in files if files[name] != expected[name]] == []


@pytest.fixture
def killed(tmp_path):
    """A folder for the run; ends what a failed test left running."""
    yield tmp_path
    kill_all(tmp_path)


@pytest.mark.slow
def test_a_run_killed_at_random_moments_ends_with_the_same_files(killed, letters, straight, request):
    small_matrix.write(killed, *small_matrix.configuration(letters))
    seconds = float((straight / small_matrix.TIME).read_text())
    expected = published(straight)
    kills = request.config.getoption("--kills")
    done, runs = run_with_kills(killed, kills, seconds / 5, random.Random(25), expected)
    assert_same(published(killed), expected)
    names = ("main.tex", "tables.tex", "comparison.csv", "tables.html")
    assert {f"paper_tables/{name}" for name in names} <= set(expected)
    assert {f"results/mmlu/small/{name}/adapter_config.json" for name in ("sft", "dpo", "conftuner")} <= set(expected)
    assert sum(name.endswith("metrics.json") for name in expected) == 7
    once, computed = work(straight), work(killed)
    assert "dpo mmlu/small" in computed and set(computed) <= set(once)  # what a killed tee had not written is lost
    ratio = computed.total() / (runs * once.total())
    print(f"\n{kills} kills in {runs} run(s) of {seconds:.0f} s: {dict(done)}")
    print(f"{len(expected)} published files, the same bytes in each")
    print(f"items and steps computed: {computed.total()} instead of {runs} x {once.total()} ({ratio:.2f})")


def environment(**more) -> dict:
    return os.environ | {"PYTHONPATH": str(ROOT / "workflow")} | more


def command(*arguments) -> list[str]:
    return [sys.executable, str(PROGRAMS), "progress", *arguments]


def in_a_log(*arguments, **more) -> list[str]:
    done = subprocess.run(command(*arguments), env=environment(**more), capture_output=True, text=True, check=False)
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_a_log_gets_plain_lines_and_of_a_quick_step_the_last_count_only():
    lines = in_a_log("0.2", FORCE_COLOR="1", TTY_COMPATIBLE="1")
    shown = [line for line in lines if line.startswith("[sample arithmetic/[small]] ")]
    assert 2 <= len(shown) <= 4
    assert re.fullmatch(r"\[sample arithmetic/\[small\]\] 40/40  \d+ s  loss 0.0250", shown[-1])
    assert "s left" in shown[0]
    assert not re.search(r"[\x1b\r━]", "".join(lines))
    (line,) = [line for line in in_a_log("10") if line.startswith("[sample")]
    assert line.startswith("[sample arithmetic/[small]] 40/40  ")


FOUND = "print(sum(name in sys.modules for name in ('sklearn', 'scipy.optimize')))"
FIT = "from orce.methods import fitted; fitted.fit_isotonic([0.1, 0.2, 0.9], [0, 1, 1])"


def printed(*lines: str) -> list[str]:
    command = [sys.executable, "-c", "; ".join(["import sys", *lines])]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.slow
def test_only_a_step_leaves_scikit_learn_and_scipy_out_of_its_start():
    start = ("from orce.runtime import process", "process.pause_collection()")
    assert printed(*start, "import orce.training.dpo, orce.judge.reader", FOUND, FIT, FOUND) == ["0", "2"]
    assert printed("import orce.llm.language_model", FOUND) == ["2"]


@pytest.mark.slow
@pytest.mark.parametrize("kept", [False, True])
def test_on_the_cpu_the_memory_of_large_tensors_is_used_again(kept):
    """Each of 20 of 64 MB, freed before the next, would have its 16,384 pages cleared by the kernel."""
    keep = ["from orce.runtime import process", *["process.pause_collection()"] * kept, "process.keep_memory()"]
    count = "resource.getrusage(resource.RUSAGE_SELF).ru_minflt"
    lines = ["import resource, torch", *keep, f"first = {count}"]
    lines += ["[None for i in range(20) if torch.ones(2 ** 24).sum() < i]"]
    (faults,) = printed(*lines, f"print({count} - first)")
    assert (int(faults) < 10 * 16_384) == kept


@pytest.mark.slow
def test_a_step_waits_for_its_threads_and_ends_with_its_code():
    left = "atexit.register(print, 'left to the end', flush=True)"
    code = f"import atexit; {left}; from orce.runtime import process; process.pause_collection(); import torch; process.end(7)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "left to the end\n", "")
    late = "threading.Timer(0.5, print, ['late']).start()"
    code = f"import threading, torch; {late}; from orce.runtime import process; process.end(0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "late\n"
