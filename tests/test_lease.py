"""Leases of GPUs, with real processes and real kills. Device ids are names here: no GPU is needed to share them out.

Jobs write what happens to one file opened to append, so its order of lines is an order of events: a job says `start`
after it got its devices and `end` before it gives them up. A device is held twice if and only if two stretches overlap.
"""

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orce.runtime import lease

FOUR = "0,1,2,3"


@pytest.fixture
def place(tmp_path):
    """A folder with what a job runs, and lock files of its own beside it.

    The job's children: "fork" inherits the lock and the environment, "popen" only the environment (Python closes files in
    subprocesses) and "bare" only the lock.
    """
    shutil.copy(Path(__file__).parent / "data" / "leased.py", tmp_path / "job.py")
    return tmp_path


def environment(place, devices=FOUR, **more):
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ORCE_LEASE", "CUDA_"))}
    shown = {} if devices is None else {"CUDA_VISIBLE_DEVICES": devices}
    return kept | {"TMPDIR": str(place), "PYTHONPATH": str(Path(lease.__file__).parents[2])} | shown | more


def launch(place, count, *command, devices=FOUR, **more):
    line = [sys.executable, "-m", "orce.runtime.lease", str(count), "--", *command]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(line, env=environment(place, devices, **more), **pipes)


def run(place, count, *command, **more):
    """(exit code, standard output, standard error) of a leased command."""
    process = launch(place, count, *command, **more)
    out, err = process.communicate(timeout=30)
    return process.returncode, out.strip(), err.strip()


@contextlib.contextmanager
def held(place, *command, devices=FOUR):
    """A leased command that holds one device until the end of the block; the line that it began with is `said`."""
    process = launch(place, 1, *command, devices=devices)
    process.said = process.stderr.readline()
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def show(place, count, **more):
    return run(place, count, "sh", "-c", "echo $CUDA_VISIBLE_DEVICES", **more)


def check_nothing_held_twice(log):
    """Replay the log: no job may start on a device that another one holds. Returns the devices of each job."""
    held, seen, killed = {}, {}, set()
    for line in log.read_text().splitlines():
        what, name, devices = line.split()
        job, devices = name.split("+")[0], devices.split(",")
        if what == "start":
            seen[job] = devices
            for device in devices:
                others = {other for other in held.get(device, ()) if other.split("+")[0] != job}
                assert not others, f"{name} got {device}, which {others} had"
                if name not in killed:  # it started between the word about its kill and the kill
                    held.setdefault(device, set()).add(name)
        else:
            killed |= {name} if what == "kill" else set()
            for holders in held.values():
                holders.discard(name)
    return seen


@pytest.mark.slow
def test_jobs_that_are_killed_share_four_devices(place):
    count, log, dice = 100, place / "log", random.Random(1)
    log.touch()
    python = [sys.executable, "-SE", str(place / "job.py"), str(log)]

    def job(number):
        doomed = number % 5 == 0
        # Under load a shorter one would have ended before it is killed.
        seconds = 0.5 if doomed else dice.uniform(0, 0.06)
        child = dice.choice(["none", "none", "none", "fork", "popen", "bare"])
        process = launch(place, dice.choice([1, 1, 2]), *python, f"job{number}", str(seconds), child)
        if doomed:
            time.sleep(dice.uniform(0, 0.4))
            with open(log, "a") as handle:  # before the kill, so that no later start can be the job's own fault
                handle.write(f"kill job{number} {FOUR}\n")
            process.kill()
        code = process.wait(timeout=60)  # not for its children, which may hold on to the pipes
        process.stdout.close(), process.stderr.close()
        return code

    with ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(job, range(count)))
    assert set(codes) == {0, -signal.SIGKILL}
    assert codes.count(-signal.SIGKILL) > count / 10
    # Once the last child has ended, all four are free: with a fifth in sight a job of four has to lease, and only then
    # it gets these.
    limit = time.monotonic() + 10
    while show(place, 4, devices=FOUR + ",4")[1] != FOUR:
        assert time.monotonic() < limit
    seen = check_nothing_held_twice(log)
    assert set().union(*seen.values()) == set(FOUR.split(","))
    assert {len(devices) for devices in seen.values()} == {1, 2}
    assert len(re.findall(r"start job\d+\+child", log.read_text())) > count / 5


@pytest.mark.slow
def test_a_job_of_three_is_not_overtaken_forever(place):
    """Jobs of one device keep coming, more than fit; a job of three has its turn before they end."""
    stop = threading.Event()

    def keep_coming():
        while not stop.is_set():
            assert run(place, 1, "sleep", "0.2")[0] == 0

    with ThreadPoolExecutor(8) as pool:
        streams = [pool.submit(keep_coming) for _ in range(8)]
        time.sleep(0.5)
        try:
            assert show(place, 3)[0] == 0
            assert not any(stream.done() for stream in streams)
        finally:
            stop.set()
    assert [stream.result() for stream in streams] == [None] * 8


def test_no_lease_where_none_or_as_many_as_there_are_is_asked_for(place):
    assert show(place, 2, devices="6,7") == (0, "6,7", "[lease] GPU 6,7, as given")
    assert show(place, "1/1", devices="7") == (0, "7", "[lease] GPU 7, as given")
    code, out, _ = run(place, 2, "env", devices="6,7")
    assert code == 0 and "ORCE_LEASE" not in out
    assert not list(place.glob("orce-gpus-*"))
    for count, devices in ((0, ""), ("0/0", ""), (0, "0,1")):
        assert show(place, count, devices=devices) == (0, devices, "")
    code, out, err = run(place, 2, "sh", "-c", "echo $CUDA_VISIBLE_DEVICES $ORCE_LEASE", devices="4,5,6")
    assert (code, out, err) == (0, "4,5 4,5", "[lease] GPU 4,5")


ODD = " 3, 1,3,GPU-ab ,-1,2"


def test_devices_are_numbers_or_uuids_each_once_up_to_one_that_is_none(place):
    ids = ["GPU-8f1c2b3a-0000-4d5e-8a9b-0123456789ab", "MIG-GPU-8f1c2b3a-0000-4d5e-8a9b-0123456789ab/1/0", "GPU-77"]
    with held(place, "sleep", "3", devices=",".join(ids)) as first:
        assert first.said == f"[lease] GPU {ids[0]}\n"
        assert show(place, 2, devices=",".join(ids))[1] == ",".join(ids[1:])
    assert show(place, 2, devices=ODD)[1] == "3,1"


@pytest.mark.parametrize(("count", "devices", "said"), [
    *((2, devices, "2 GPUs and this machine shows 1 (CUDA_VISIBLE_DEVICES=") for devices in ("0", "0,-1,1", "0,0")),
    *((2, devices, "2 GPUs and this machine shows 0 (CUDA_VISIBLE_DEVICES=") for devices in ("", "-1", "NoDevFiles")),
    (4, ODD, "4 GPUs and this machine shows 3 (CUDA_VISIBLE_DEVICES="),
    ("1/2", FOUR, "2 GPUs and --resources gpu=1 leaves it 1; ask for at least gpu=2, or"),
    ("0/1", "", "1 GPU and --resources gpu=0 leaves it 0; ask for at least gpu=1, or"),
])  # fmt: skip
def test_a_job_that_cannot_have_what_it_wants_does_not_run_and_says_so_in_one_line(place, count, devices, said):
    code, out, err = show(place, count, devices=devices)
    assert (code, out) == (2, "")
    assert err.startswith(f"[lease] this job needs {said}")
    assert len(err.splitlines()) == 1 and "configuration" in err


def test_without_the_variable_nvidia_smi_is_asked(place):
    """A stand-in for the program on the path; the machine that runs the tests need not have one."""
    smi, path = place / "nvidia-smi", f"{place}:/usr/bin:/bin"
    smi.write_text("#!/bin/sh\nprintf '0\\n1\\n2\\n'\n")
    smi.chmod(0o755)
    assert show(place, 2, devices=None, PATH=path)[1] == "0,1"
    smi.write_text("#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'; exit 18\n")
    code, _, err = show(place, 1, devices=None, PATH=path)
    assert code == 2 and "needs 1 GPU and this machine shows 0 (nvidia-smi: Failed to initialize NVML" in err
    code, _, err = show(place, 1, devices=None, PATH=str(place / "nowhere"))
    assert code == 2 and "needs 1 GPU and this machine shows 0" in err


def test_the_exit_code_is_the_commands_and_signals_reach_it(place):
    assert run(place, 1, "sh", "-c", "exit 7")[0] == 7
    assert run(place, 1, "sh", "-c", "kill -9 $$")[0] == -signal.SIGKILL
    code, _, err = run(place, 1, "no-such-program")
    assert code == 127 and err.endswith("[lease] no-such-program: No such file or directory")
    process = launch(place, 1, "sh", "-c", "trap 'echo stopped; exit 5' TERM; echo ready; while :; do sleep 0.05; done")
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    assert process.communicate(timeout=10)[0] == "stopped\n"
    assert process.returncode == 5
    # Python ignores SIGPIPE; in the command a closed pipe must end the writer as in any shell.
    _, out, _ = run(place, 1, "grep", "SigIgn", "/proc/self/status")
    assert not int(out.split()[1], 16) & 1 << (signal.SIGPIPE - 1)


@pytest.mark.parametrize("words", ["", "1/ -- true", "1/2/3 -- true", "1 --", "one -- true", "-1 -- true", "1 true"])
def test_usage(words, capfd):
    assert lease.main(words.split()) == 2
    assert "usage: python -m orce.runtime.lease N[/WANTED] -- COMMAND" in capfd.readouterr().err


def test_a_lock_folder_that_others_can_write_is_refused(place):
    folder = place / f"orce-gpus-{os.getuid()}"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    code, _, err = show(place, 1)
    assert code == 2 and str(folder) in err
    folder.rmdir()
    folder.symlink_to(place)
    assert show(place, 1)[0] == 2


def test_a_script_that_uses_descriptors_keeps_its_lock(place):
    closing = 'for i in {3..20}; do eval "exec $i>&-"; done; exec env -i sleep 3'
    with held(place, "bash", "-c", closing):
        time.sleep(0.2)
        assert show(place, 1)[1] == "1"


def test_a_long_wait_says_what_it_waits_for(place):
    code = "import sys; from orce.runtime import lease; lease.PATIENCE = 0.2; sys.exit(lease.main(sys.argv[1:]))"
    line, around = [sys.executable, "-c", code, "1", "--", "true"], environment(place, "0,1")
    with held(place, "sleep", "30", devices="0,1") as first, held(place, "sleep", "30", devices="0,1") as second:
        third = subprocess.Popen(line, env=around, stderr=subprocess.PIPE, text=True)
        said = third.stderr.readline()
    assert said.startswith("[lease] waiting 0 s for 1 of GPU 0,1; leased: ")
    assert str(first.pid) in said and str(second.pid) in said
    assert third.communicate(timeout=10)[1] and third.returncode == 0


def test_a_workflow_inside_a_lease_shares_that_lease(place):
    """Without a level of its own it would wait for devices that its own parent holds."""
    inner = f"{sys.executable} -m orce.runtime.lease 1 -- sh -c 'echo $CUDA_VISIBLE_DEVICES; sleep 0.5'"
    code, out, _ = run(place, 2, "sh", "-c", f"{inner} & sleep 0.1; {inner}; wait")
    assert code == 0 and sorted(out.split()) == ["0", "1"]
    assert show(place, 4, devices=FOUR + ",4")[1] == FOUR


SNAKEFILE = """
rule all:
    input: expand("{name}.done", name=[*"abcdef", "pair"])

rule job:
    output: "{name}.done"
    resources: gpu=lambda wildcards: 2 if wildcards.name == "pair" else 1
    shell:
        "PYTHON -m orce.runtime.lease {resources.gpu} -- PYTHON -SE job.py log {wildcards.name} 0.4 none; touch {output}"
"""


@pytest.mark.slow
def test_jobs_of_a_local_snakemake_run_get_distinct_devices(place):
    (place / "Snakefile").write_text(SNAKEFILE.replace("PYTHON", sys.executable))
    command = [sys.executable, "-m", "snakemake", "--resources", "gpu=4", "--cores", "8", "--", "all"]
    options = {"cwd": place, "env": environment(place), "timeout": 60}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    seen = check_nothing_held_twice(place / "log")
    assert {name: len(devices) for name, devices in seen.items()} == dict.fromkeys("abcdef", 1) | {"pair": 2}
    assert set().union(*seen.values()) == set(FOUR.split(","))
