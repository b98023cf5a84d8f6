"""What some tests need of the machine besides Python 3.11 and make: Debian packages, root, mounts of their own.

A test names its needs (`@pytest.mark.needs("latex")`) and is skipped where they are missing; where ORCE_TEST_ALL is set,
it fails instead (conftest.py). `python tests/needs.py` prints the missing packages, for .ci/run to install: it runs before
there is an environment, so this file imports the standard library alone.
"""

import ctypes.util
import functools
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ALL = "ORCE_TEST_ALL"
PATH = f"{os.environ['PATH']}:/usr/sbin"  # a user's PATH may lack the folder of SLURM's daemons


@dataclass(frozen=True)
class Need:
    """`present` says whether the packages (Debian's names) are there; `usable`, whether this user may use them here."""

    name: str
    packages: tuple[str, ...]
    present: Callable[[], bool]
    usable: Callable[[], bool] = lambda: True
    otherwise: str = ""

    def missing(self) -> str:
        """Why the machine cannot serve this need; empty if it can."""
        if not self.present():
            return f"{self.name} is not installed ({' '.join(self.packages) or self.otherwise})"
        return "" if self.usable() else f"{self.name}: {self.otherwise}"


def programs(*names: str) -> Callable[[], bool]:
    return lambda: all(shutil.which(name, path=PATH) for name in names)


def root() -> bool:
    return os.geteuid() == 0


def vllm_wheel() -> Path | None:
    """The wheel of the vllm that envs/gpu.txt pins, as `make vllm-source` fetches it."""
    root = Path(__file__).parents[1]
    pinned = re.search(r"^vllm==(\S+)", (root / "envs" / "gpu.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    return next(root.glob(f".venv/vllm-source/vllm-{pinned[1]}-*.whl"), None)


def latex() -> bool:
    """pdflatex with what the tables use."""
    styles = ["kpsewhich", "lmodern.sty", "booktabs.sty", "multirow.sty", "makecell.sty"]
    return programs("pdflatex", "kpsewhich")() and succeeds(*styles)


def mounting() -> list[str]:
    """Command before a command that may mount: users who are not root need a user namespace, which a chroot refuses."""
    return ["unshare", "--mount", *([] if root() else ["--map-root-user"])]


def succeeds(*command: str) -> bool:
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return done.returncode == 0


NEEDS = {
    "latex": Need("LaTeX", ("texlive-latex-extra", "lmodern"), latex),
    "mounts": Need(
        "Mounting",
        ("util-linux", "mount"),
        programs("unshare", "mount"),
        lambda: succeeds(*mounting(), "mount", "-t", "tmpfs", "none", "/mnt"),
        "neither as root nor in a namespace of one's own, as in a chroot or a container",
    ),
    # The library that vllm's build for CPUs is linked against.
    "numa": Need("libnuma", ("libnuma1",), lambda: ctypes.util.find_library("numa") is not None),
    "poppler": Need("poppler", ("poppler-utils",), programs("pdfinfo", "pdftotext", "pdftoppm")),
    "slurm": Need(
        "SLURM",
        ("slurm-wlm", "munge"),
        programs("munged", "slurmctld", "slurmd", "sbatch"),
        root,
        "tests/slurm.py starts it as root",
    ),
    "vllm-source": Need("vllm's wheel for GPUs", (), lambda: vllm_wheel() is not None, otherwise="make vllm-source"),
}


@functools.cache
def missing(name: str) -> str:
    """Why the tests that need `name` cannot run here; empty if they can."""
    return NEEDS[name].missing()


def packages(names) -> list[str]:
    """Debian packages that the needs of these names lack."""
    return sorted({package for name in names if not NEEDS[name].present() for package in NEEDS[name].packages})


def closing_line(skipped: dict[str, int]) -> str:
    """What to do about the skipped tests: `skipped` counts them for each need."""
    count = sum(skipped.values())
    wanted = packages(skipped)
    installs = f"installs {' '.join(wanted)} and " if wanted else ""
    names = ", ".join(NEEDS[name].name for name in skipped)
    return f"{count} test{'s' * (count > 1)} skipped for want of {names}: `.ci/run`, as root, {installs}runs every test"


if __name__ == "__main__":
    print(*packages(NEEDS))
