"""Wrong checkouts (tests/data/mutants.jsonl), each a line away from the right one: do the quick tests tell? `make mutants`.

A mutant is applied to a copy of the checkout, so that a test which starts a program or reads a rule meets it as well. The tests
of its part have to fail: those of other files do not count, since some fail in a process of the pool, which may start no others.
Ends with 1 if one survives, or if a text to change is not in its place exactly once: then the code has changed, and the mutant has
to follow.
"""

import contextlib
import importlib
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]


class Mutant(NamedTuple):
    """`old` becomes `new` in a file below workflow/; `wrong` is what that breaks; `tests` are the files that know it.

    place: the function, class or rule in which `old` stands, where the file has it elsewhere too.
    """

    file: str
    tests: str
    wrong: str
    old: str
    new: str
    place: str = ""


MUTANTS = [Mutant(**json.loads(line)) for line in (ROOT / "tests" / "data" / "mutants.jsonl").open(encoding="utf-8")]


def span(text: str, place: str) -> tuple[int, int]:
    """Where a function, class or rule begins and ends in a file: all of it if `place` is empty, nothing if it is not there."""
    if not place:
        return 0, len(text)
    head = re.search(rf"^( *)(?:def|class|rule|use rule \w+ as) {place}\b.*\n", text, re.MULTILINE)
    if head is None:
        return 0, 0
    following = re.compile(rf"^ {{0,{len(head[1])}}}[^\s)]", re.MULTILINE).search(text, head.end())
    return head.start(), following.start() if following else len(text)


def anchor(old: str) -> re.Pattern:
    """Matches a text however its lines are broken: a formatter may put a comma before a bracket that closes on its own line."""
    words = (re.escape(word) for word in re.findall(r"\w+|[^\w\s]", old))
    inner = r"\s*".join(rf"(?:,\s*)?{word}" if word in (r"\)", r"\]", r"\}") else word for word in words)
    return re.compile(old[: len(old) - len(old.lstrip())] + inner + old[len(old.rstrip()) :])


def mutated(text: str, mutant: Mutant) -> str:
    start, end = span(text, mutant.place)
    return text[:start] + anchor(mutant.old).sub(lambda _: mutant.new, text[start:end]) + text[end:]


def misfits() -> list[str]:
    """Mutants whose text to change is not in its place exactly once."""
    wrong = []
    for mutant in MUTANTS:
        text = (ROOT / "workflow" / mutant.file).read_text()
        start, end = span(text, mutant.place)
        count = len(anchor(mutant.old).findall(text[start:end]))
        if count != 1:
            wrong.append(f"{mutant.file} {mutant.place}: {mutant.old!r} is there {count} times".replace(" :", ":"))
    return wrong


class First:
    """The first test of a session that fails, as a plugin of pytest."""

    name = ""

    def pytest_runtest_logreport(self, report):
        self.name = self.name or report.nodeid * report.failed

    pytest_collectreport = pytest_runtest_logreport


@contextlib.contextmanager
def checkout() -> Iterator[Path]:
    """A copy of the checkout, without what git ignores."""
    listed = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        for name in subprocess.run(listed, check=True, capture_output=True, text=True).stdout.splitlines():
            if (ROOT / name).exists():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, copy / name)
        (copy / ".git").symlink_to(ROOT / ".git")
        yield copy


def notices(mutant: Mutant) -> str:
    """The quick test of its part that fails with a mutant; nothing if all pass. For a process of its own: it imports the library."""
    with checkout() as copy:
        changed = copy / "workflow" / mutant.file
        changed.write_text(mutated(changed.read_text(), mutant))
        return failing(copy, [f"tests/test_{name}.py" for name in mutant.tests.split()])


def passes(tests: list[str]) -> str:
    """The test that fails in the checkout as it is; nothing if all pass. A broken test would kill every mutant."""
    with checkout() as copy:
        return failing(copy, tests)


def failing(copy: Path, tests: list[str]) -> str:
    """The first of some tests that fails in a copy of the checkout."""
    os.environ |= {"PYTHONPATH": str(copy / "workflow"), "OMP_NUM_THREADS": "1", "GIT_OPTIONAL_LOCKS": "0"}
    os.chdir(copy)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    # Converted models stay in the cache of this checkout.
    kept = ["-o", f"cache_dir={ROOT / '.pytest_cache'}", "--basetemp", str(copy.with_name("tests"))]
    first = First()
    code = pytest.main(["-m", "not slow", "-x", "-q", "--tb=no", "-n", "0", *kept, *tests], plugins=[first])
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
    chosen = [
        mutant for mutant in MUTANTS if not words or any(word in f"{mutant.file}: {mutant.wrong}" for word in words)
    ]
    started, killed = time.monotonic(), 0
    prepare()
    # Each mutant in a process that is forked from this one.
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        known = sorted({f"tests/test_{name}.py" for mutant in chosen for name in mutant.tests.split()})
        if broken := pool.apply(passes, [known]):
            print(f"{broken} fails without any mutant; repair that first")
            return 1
        for mutant, test in zip(chosen, pool.imap(notices, chosen, chunksize=1), strict=True):
            killed += bool(test)
            fate = "killed  " if test else "SURVIVED"
            print(f"{fate} {mutant.file}: {mutant.wrong} {test and f'({test})'}", flush=True)
    minutes = (time.monotonic() - started) / 60
    print(f"{killed} of {len(chosen)} mutants killed in {minutes:.1f} minutes; all have to be")
    return int(killed < len(chosen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
