"""A real SLURM for the tests: one node that believes in 8 CPUs and four GPUs, and no accounting database.

It lives in one folder (key, socket, state, logs), leaves /etc/slurm and a SLURM of the machine alone, and needs root.
"""

import contextlib
import os
import re
import secrets
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import needs
import psutil
from small_matrix import marked

MARK = "ORCE_TEST_SLURM"  # in the environment of everything that is started from here, jobs included
OUTAGE = 25  # seconds; SLURM gives a job of the last 15 the benefit of the doubt
KILL_WAIT = 10  # seconds between SIGTERM and SIGKILL


# GPUs are character devices: with plain files, or a bare count, CUDA_VISIBLE_DEVICES stays empty.
GRES_CONF = "AutoDetect=off\nNodeName={host} Name=gpu Type=h100 File={folder}/gpu[0-3]\n"


class Slurm:
    """The daemons in `folder`, and what the tests ask of them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.host = socket.gethostname().partition(".")[0]
        self.daemons: list[subprocess.Popen] = []  # slurmd is the last
        self.environment = os.environ | {
            MARK: str(folder),
            "SLURM_CONF": f"{folder}/slurm.conf",
            "PATH": f"{folder}/bin:{os.environ['PATH']}",
        }

    def start(self) -> None:
        facts = {"host": self.host, "folder": self.folder, "ports": _free_ports(), "kill_wait": KILL_WAIT}
        conf = (Path(__file__).parent / "data" / "slurm.conf").read_text()
        (self.folder / "slurm.conf").write_text(conf.format(**facts))
        (self.folder / "gres.conf").write_text(GRES_CONF.format(**facts))
        for name in ("state", "spool", "bin"):
            (self.folder / name).mkdir()
        for number in range(4):
            os.mknod(self.folder / f"gpu{number}", stat.S_IFCHR | 0o600, os.makedev(1, 3))  # as /dev/null
        # Snakemake's jobs drop their SLURM_ variables, so their srun would read /etc/slurm.
        srun = self.folder / "bin" / "srun"
        srun.write_text(f'#!/bin/sh\nSLURM_CONF={self.folder}/slurm.conf exec {shutil.which("srun")} "$@"\n')
        srun.chmod(0o755)
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        files = [f"--{name}-file={self.folder}/munge.{name}" for name in ("key", "seed", "log", "pid")]
        self._daemon("munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket", *files)
        self._until((self.folder / "munge.socket").exists)
        self._daemon("slurmctld", "-D")
        self._daemon("slurmd", "-D", "-N", self.host)
        self._until(lambda: self.command("sinfo", "--noheader", "--format=%T", check=False).strip() == "idle")

    def _daemon(self, name: str, *arguments: str) -> None:
        program = shutil.which(name, path=needs.PATH)
        with open(self.folder / f"{name}.log", "wb") as log:
            started = {"env": self.environment, "stdout": log, "stderr": log, "cwd": self.folder}
            self.daemons.append(subprocess.Popen([program, *arguments], **started))

    def crash_node(self) -> None:
        """The node loses its power for a while: slurmd and all that its jobs have started are killed."""
        for process in self._on_the_node():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.daemons.pop().wait()
        time.sleep(OUTAGE)
        self._daemon("slurmd", "-D", "-b", "-N", self.host)  # -b: as after a boot, so that SLURM sees a failed node

    def _on_the_node(self) -> list[psutil.Process]:
        """slurmd, then each slurmstepd, which overwrites its own environment and so bears no mark, then the jobs below these.

        In this order nobody is left who could report a job that is killed as a failed one, which is not run again.
        """
        found: dict[psutil.Process, int] = {}
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                line = [process, *process.parents()]
                names = [one.name() for one in line]
                if "slurmstepd" in names:
                    daemon = names.index("slurmstepd")
                    found |= dict.fromkeys(line[:daemon], 2) | {line[daemon]: 1}
                elif names[0] == "slurmd":
                    found[process] = 0
        return sorted(found, key=found.__getitem__)

    def _until(self, ready) -> None:
        end = time.monotonic() + 30
        while not ready():
            if time.monotonic() > end or any(daemon.poll() is not None for daemon in self.daemons):
                logs = "\n".join(path.read_text()[-2000:] for path in sorted(self.folder.glob("*.log")))
                raise RuntimeError(f"SLURM does not start: {logs}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End the jobs, then the daemons; whatever is left is killed."""
        self.command("scancel", "--user=root", check=False)
        end = time.monotonic() + KILL_WAIT + 10
        while self.command("squeue", "--noheader", check=False) and time.monotonic() < end:
            time.sleep(0.2)
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(timeout=10)
        for process in self.processes():
            process.kill()

    def command(self, *words: str, check: bool = True) -> str:
        """What a SLURM command prints."""
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=30, check=False)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr}")
        return done.stdout

    def jobs(self) -> list[dict]:
        """What SLURM says of every job since its start, one dictionary of its NAME=VALUE each."""
        text = self.command("scontrol", "--oneliner", "show", "jobs")
        return [_facts(line) for line in text.splitlines() if line.startswith("JobId=")]

    def job(self, number: str) -> dict:
        return _facts(self.command("scontrol", "--oneliner", "show", "job", number))

    def record(self) -> list[dict]:
        """SLURM's record of every run that has ended, in the order of their ends: a requeued job ran twice."""
        return [_facts(line) for line in (self.folder / "finished.txt").read_text().splitlines()]

    def processes(self) -> list[psutil.Process]:
        """Live processes that were started from here, directly or by a job."""
        return marked(MARK, self.folder)


def _facts(line: str) -> dict:
    return dict(re.findall(r"(\w+)=(\S*)", line))


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Slurm]:
    slurm = Slurm(folder)
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.stop()


def _free_ports() -> list[int]:
    """Of SLURM's two daemons."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return [one.getsockname()[1], other.getsockname()[1]]
