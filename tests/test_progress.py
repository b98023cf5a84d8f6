"""A process of a stage: its progress on a terminal and in a log, and what it leaves out at its start and its end."""

import os
import pty
import re
import subprocess
import sys

import pytest
from conftest import ROOT

PROGRAM = """
import sys, time
from orce.runtime.process import Progress, say
progress = Progress("sample arithmetic/[small]", 40, every=float(sys.argv[1]))
for done in range(8, 41, 8):
    progress.update(done, f"loss {1 / done:.4f}")
    if done == 24:
        say("[lease] GPU 2,3")
    if done == 32 and "fail" in sys.argv:
        raise SystemExit("orce sample: no such file")
    time.sleep(0.15)
say("finished")
"""


def environment(**more) -> dict:
    return os.environ | {"PYTHONPATH": str(ROOT / "workflow"), "TERM": "xterm", "COLUMNS": "100"} | more


def command(*arguments) -> list[str]:
    return [sys.executable, "-c", PROGRAM, *arguments]


def in_a_log(*arguments, **more) -> list[str]:
    done = subprocess.run(command(*arguments), env=environment(**more), capture_output=True, text=True, check=False)
    assert done.stdout == ""
    return done.stderr.splitlines()


def on_a_terminal(*arguments, **more) -> str:
    """All that the program writes where standard error is a terminal and standard output a pipe."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command(*arguments), env=environment(**more), stdout=subprocess.PIPE, stderr=theirs) as job:
        os.close(theirs)
        written = b"".join(iter(lambda: _read(ours), b""))
        assert job.stdout.read() == b""
    os.close(ours)
    return written.decode()


def _read(handle) -> bytes:
    try:
        return os.read(handle, 65536)
    except OSError:  # what Linux says where the other end is closed
        return b""


def screen(written: str) -> list[str]:
    """The lines that stand on the terminal in the end: each as it was last redrawn, without colours."""
    bare = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written).replace("\r\n", "\n")
    return [line.rsplit("\r", 1)[-1].rstrip() for line in bare.split("\n") if line]


def test_a_terminal_gets_one_bar_that_ends_full():
    lines = screen(on_a_terminal("10"))
    bars = [line for line in lines if "40/40" in line]
    assert len(bars) == 1 and "━" in bars[0] and "loss 0.0250" in bars[0] and "arithmetic/[small]" in bars[0]
    assert lines[-1] == "finished" and lines.index("[lease] GPU 2,3") < lines.index(bars[0])


def test_a_program_that_is_killed_leaves_the_cursor_visible():
    written = on_a_terminal("10")
    hidden, shown = written.rindex("\x1b[?25l"), written.index("\x1b[?25h")
    assert hidden < shown < written.index(" 8/40")


def test_what_is_said_after_an_error_starts_on_a_line_of_its_own():
    lines = screen(on_a_terminal("10", "fail"))
    assert "orce sample: no such file" in lines
    assert [line for line in lines if "━" in line][-1].count("/40") == 1


def test_a_log_gets_plain_lines_and_no_control_characters():
    lines = in_a_log("0.2", FORCE_COLOR="1", TTY_COMPATIBLE="1")
    shown = [line for line in lines if line.startswith("[sample arithmetic/[small]] ")]
    assert 2 <= len(shown) <= 4
    assert re.fullmatch(r"\[sample arithmetic/\[small\]\] 40/40  \d+ s  loss 0.0250", shown[-1])
    assert "s left" in shown[0]
    assert not re.search(r"[\x1b\r━]", "".join(lines))


def test_a_log_of_a_quick_step_has_its_last_count_only():
    (line,) = [line for line in in_a_log("10") if line.startswith("[sample")]
    assert line.startswith("[sample arithmetic/[small]] 40/40  ")


def test_a_terminal_that_cannot_redraw_gets_the_plain_lines():
    lines = screen(on_a_terminal("10", TERM="dumb"))
    assert lines[0] == "[lease] GPU 2,3" and lines[1].startswith("[sample arithmetic/[small]] 40/40  ")


FOUND = "print(sum(name in sys.modules for name in ('sklearn', 'scipy.optimize')))"
FIT = "from orce.methods import fitted; fitted.fit_isotonic([0.1, 0.2, 0.9], [0, 1, 1])"


def printed(*lines: str) -> list[str]:
    command = [sys.executable, "-c", "; ".join(["import sys", *lines])]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.slow
def test_only_a_step_leaves_scikit_learn_and_scipy_out_of_its_start():
    start = ("from orce.runtime import process", "process.importing()")
    assert printed(*start, "import orce.training.dpo, orce.judging.reader", FOUND, FIT, FOUND) == ["0", "2"]
    assert printed("import orce.llm.language_model", FOUND) == ["2"]


@pytest.mark.slow
@pytest.mark.parametrize("kept", [False, True])
def test_on_the_cpu_the_memory_of_large_tensors_is_used_again(kept):
    """Each of 20 of 64 MB, freed before the next, would have its 16,384 pages cleared by the kernel."""
    keep = ["from orce.runtime import process", *["process.importing()"] * kept, "process.keep_memory()"]
    count = "resource.getrusage(resource.RUSAGE_SELF).ru_minflt"
    lines = [
        "import resource, torch",
        *keep,
        f"first = {count}",
        "[None for i in range(20) if torch.ones(2 ** 24).sum() < i]",
    ]
    (faults,) = printed(*lines, f"print({count} - first)")
    assert (int(faults) < 10 * 16_384) == kept


@pytest.mark.slow
def test_a_step_waits_for_its_threads_and_ends_with_its_code():
    left = "atexit.register(print, 'left to the end', flush=True)"
    code = f"import atexit; {left}; from orce.runtime import process; process.importing(); import torch; process.end(7)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "left to the end\n", "")
    late = "threading.Timer(0.5, print, ['late']).start()"
    code = f"import threading, torch; {late}; from orce.runtime import process; process.end(0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "late\n"
