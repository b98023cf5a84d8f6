"""A process of a stage: its progress on a terminal and in a log; and kill -9 at any moment, then the same command again: the same
bytes in every published file. How little is done twice: test_files.py.

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

import psutil
import pytest
import small_matrix
from conftest import PROGRAMS, program
from small_matrix import marked, published


def alive(folder):
    """Processes that a run in this folder has started, orphans included."""
    return marked(small_matrix.MARK, folder)


def kill_all(folder):
    while running := alive(folder):
        for process in running:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.05)


def steps(folder):
    """The steps at work: Python processes that a rule's command has started."""
    found = []
    for process in alive(folder):
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[1:3] == ["-m", "orce"]:
                found.append(process)
    return found


def half_written(folder) -> bool:
    """Whether a step has a file half written. A folder may go while it is searched, as a checkpoint's does."""
    with contextlib.suppress(FileNotFoundError):
        return any(folder.glob("results/**/*.tmp"))
    return False


KINDS = ("the process group", "Snakemake alone", "one step", "during a write")


def kill(kind, folder, process, dice) -> bool:
    """Kill a part of a run; False if it ended before. During a write: all, as soon as a step has a file half written."""
    running, end = steps(folder), time.monotonic() + 10
    while kind == "during a write" and process.poll() is None and time.monotonic() < end and not half_written(folder):
        continue
    if process.poll() is not None:
        return False
    if kind == "Snakemake alone":  # its jobs live on, and the next run meets them
        process.kill()
        process.wait()
        return True
    if kind == "one step" and running:  # Snakemake sees a failed job and ends by itself
        with contextlib.suppress(psutil.NoSuchProcess):
            dice.choice(running).kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kill_all(folder)
    return True


def run_with_kills(folder, kills, longest, dice, expected) -> int:
    """Kill a run and start it again, `kills` times, and let it end. What ends before that begins anew: the number of whole runs."""
    done, runs, kinds = 0, 1, itertools.cycle(KINDS)
    while done < kills:
        process = small_matrix.start(folder)
        try:
            code = process.wait(timeout=dice.uniform(0.5, longest))
        except subprocess.TimeoutExpired:
            done += kill(next(kinds), folder, process, dice)
            print(f"{done} of {kills} kills", flush=True)
            continue
        assert code == 0, (folder / "output.txt").read_text()[-6000:]
        kill_all(folder)  # what lives on would delete its folders while they are searched
        assert_same(published(folder), expected)
        for name in ("results", "paper_tables"):
            shutil.rmtree(folder / name)
        runs += 1
    small_matrix.finish(folder)
    return runs


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
    runs = run_with_kills(killed, kills, seconds / 5, random.Random(25), expected)
    assert_same(published(killed), expected)
    names = ("main.tex", "tables.tex", "comparison.csv", "tables.html")
    assert {f"paper_tables/{name}" for name in names} <= set(expected)
    assert {f"results/mmlu/small/{name}/adapter_config.json" for name in ("sft", "dpo", "conftuner")} <= set(expected)
    assert sum(name.endswith("metrics.json") for name in expected) == 7
    print(f"\n{kills} kills in {runs} run(s) of {seconds:.0f} s: the same bytes in {len(expected)} published files")


def test_a_log_gets_plain_lines_and_of_a_quick_step_the_last_count_only():
    def in_a_log(every: str, **environment) -> list[str]:
        done = program(sys.executable, PROGRAMS, "progress", every, **environment)
        assert done.stdout == ""
        return [line for line in done.stderr.splitlines() if line.startswith("[sample arithmetic/[small]] ")]

    first, *_, last = shown = in_a_log("0.2", FORCE_COLOR="1", TTY_COMPATIBLE="1")
    assert 2 <= len(shown) <= 4 and "s left" in first
    assert re.fullmatch(r"\[sample arithmetic/\[small\]\] 40/40  \d+ s  loss 0.0250", last)
    assert not re.search(r"[\x1b\r━]", "".join(shown))
    (line,) = in_a_log("10")
    assert line.startswith("[sample arithmetic/[small]] 40/40  ")


def python(*lines: str):
    return program(sys.executable, "-c", "; ".join(lines))


START = ("import sys", "from orce.runtime import process", "process.pause_collection()")


@pytest.mark.slow
def test_only_a_step_leaves_scikit_learn_and_scipy_out_of_its_start():
    found = "print(sum(name in sys.modules for name in ('sklearn', 'scipy.optimize')))"
    fit = "from orce.methods import fitted; fitted.fit_isotonic([0.1, 0.2, 0.9], [0, 1, 1])"
    assert python(*START, "import orce.training.dpo, orce.judge.reader", found, fit, found).stdout == "0\n2\n"
    assert python("import sys, orce.llm.language_model", found).stdout == "2\n"


@pytest.mark.slow
@pytest.mark.parametrize("kept", [False, True])
def test_on_the_cpu_the_memory_of_large_tensors_is_used_again(kept):
    """Each of 20 of 64 MB, freed before the next, would have its 16,384 pages cleared by the kernel."""
    count = "resource.getrusage(resource.RUSAGE_SELF).ru_minflt"
    started = START if kept else START[:2]
    tensors = "[None for i in range(20) if torch.ones(2 ** 24).sum() < i]"
    lines = ["import resource, torch", *started, "process.keep_memory()", f"first = {count}", tensors]
    assert (int(python(*lines, f"print({count} - first)").stdout) < 10 * 16_384) == kept


@pytest.mark.slow
def test_a_step_waits_for_its_threads_and_ends_with_its_code():
    left = "atexit.register(print, 'left to the end', flush=True)"
    done = python("import atexit", left, *START, "import torch", "process.end(7)")
    assert (done.returncode, done.stdout, done.stderr) == (7, "left to the end\n", "")
    late = "threading.Timer(0.5, print, ['late']).start()"
    done = python("import threading, torch", late, *START[:2], "process.end(0)")
    assert (done.returncode, done.stdout) == (0, "late\n")
