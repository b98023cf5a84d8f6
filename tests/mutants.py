"""Sixty wrong libraries (tests/data/mutants.jsonl), each a line away from the right one: do the quick tests tell? `make mutants`.

A mutant is applied to a copy of workflow/orce. The tests of its part run first, the whole quick suite only if those
pass. Ends with 1 if fewer than ENOUGH are noticed, or if a line to change is not in its file exactly once: then the library
has changed, and the mutant has to follow.
"""

import importlib
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
LIBRARY = Path("workflow") / "orce"
ENOUGH = 57


class Mutant(NamedTuple):
    """`old` becomes `new` in a file of the library; `wrong` is what that breaks; `tests` are the files that know it."""

    file: str
    tests: str
    wrong: str
    old: str
    new: str


MUTANTS = [Mutant(**json.loads(line)) for line in (ROOT / "tests" / "data" / "mutants.jsonl").open(encoding="utf-8")]


def misfits() -> list[str]:
    """Mutants whose text to change is not in the library exactly once."""
    counted = [(mutant, (ROOT / LIBRARY / mutant.file).read_text().count(mutant.old)) for mutant in MUTANTS]
    return [f"{mutant.file}: {mutant.old!r} is there {n} times" for mutant, n in counted if n != 1]


class First:
    """The first test of a session that fails, as a plugin of pytest."""

    name = ""

    def pytest_runtest_logreport(self, report):
        self.name = self.name or report.nodeid * report.failed

    pytest_collectreport = pytest_runtest_logreport


def notices(mutant: Mutant) -> str:
    """The quick test that fails with a mutant; nothing if all of them pass. For a process of its own: it imports the library."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / LIBRARY
        shutil.copytree(ROOT / LIBRARY, copy)
        changed = copy / mutant.file
        changed.write_text(changed.read_text().replace(mutant.old, mutant.new))
        known = [f"tests/test_{name}.py" for name in mutant.tests.split()]
        others = ["tests", *(f"--ignore={path}" for path in known)]
        return _failing(folder, known) or _failing(folder, others)


def passes(tests: list[str]) -> str:
    """The test that fails in the library as it is; nothing if all pass. A broken test would kill every mutant."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / LIBRARY, Path(folder) / LIBRARY)
        return _failing(folder, tests)


def _failing(folder: str, tests: list[str]) -> str:
    os.environ |= {"PYTHONPATH": str(Path(folder) / LIBRARY.parent), "OMP_NUM_THREADS": "1"}
    os.chdir(ROOT)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    pythonpath = f"pythonpath={Path(folder) / LIBRARY.parent} ."
    options = ["-m", "not slow", "-x", "-q", "--tb=no", "-o", pythonpath, "-n", "0", "--basetemp", f"{folder}/tests"]
    first = First()
    code = pytest.main([*options, *tests], plugins=[first])
    return first.name or ("" if code == 0 else f"pytest ended with {code}")


def prepare() -> None:
    """Import, once for all mutants, what the tests import beside the library: most of the time of a small test."""
    trainers = ("trl.trainer.dpo_trainer", "trl.trainer.sft_trainer")
    for name in ("scipy.stats", "sklearn.metrics", "torch", "transformers", *trainers):
        importlib.import_module(name)
    assert "orce" not in sys.modules


def main(words: list[str]) -> int:
    """Try the mutants whose file or breakage has one of `words`; all of them without words."""
    if wrong := misfits():
        print("\n".join(wrong))
        return 1
    chosen = [one for one in MUTANTS if not words or any(word in f"{one.file}: {one.wrong}" for word in words)]
    started, killed = time.monotonic(), 0
    prepare()
    # Each mutant in a process that is forked from this one.
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        known = sorted({f"tests/test_{name}.py" for one in chosen for name in one.tests.split()})
        if failing := pool.apply(passes, [known]):
            print(f"{failing} fails without any mutant; repair that first")
            return 1
        for mutant, test in zip(chosen, pool.imap(notices, chosen, chunksize=1), strict=True):
            killed += bool(test)
            fate = "killed  " if test else "SURVIVED"
            print(f"{fate} {mutant.file}: {mutant.wrong} {test and f'({test})'}", flush=True)
    minutes = (time.monotonic() - started) / 60
    print(f"{killed} of {len(chosen)} mutants killed in {minutes:.1f} minutes; {ENOUGH} of {len(MUTANTS)} have to be")
    return int(len(chosen) - killed > len(MUTANTS) - ENOUGH)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
