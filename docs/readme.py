"""Write the outputs of the README's three commands into it: `python docs/readme.py [RUN]`, which `make images` does.

RUN is the folder of a finished `make demo` (default: the checkout). Each output stands between `<!-- output: NAME -->` and
`<!-- end -->`.
"""

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "README.md"
BLOCK = re.compile(r"```bash\n([^`]+)\n```\n\n<!-- output: (\w+) -->\n(.*?)<!-- end -->", re.DOTALL)
SHOWN = "worldfacts, smollm2"  # the part of the demo's rows that the README shows


WIDE = 96


def python(folder: Path, *arguments: str, given: str = "") -> list[str]:
    """Lines that `python ARGUMENTS` prints in a folder, on both of its outputs."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, input=given, capture_output=True, text=True, check=True)
    return (done.stdout + done.stderr).splitlines()


def demo(run: Path, command: str) -> list[str]:
    """The rows of one dataset: `make demo` ends with those of all."""
    lines = python(run, str(ROOT / "tools" / "rows.py"))
    start = next(i for i, line in enumerate(lines) if line.startswith(SHOWN))
    length = next(i for i, line in enumerate([*lines[start + 1 :], "end"]) if not line.startswith(" "))
    return ["...", *lines[start : start + 1 + length]]


def score(run: Path, command: str) -> list[str]:
    """What the command of the page prints, as far as a screen is wide."""
    words = shlex.split(command.replace("\\\n", " "))
    pipe = words.index("|")
    line = python(run, *words[pipe + 2 :], given=f"{words[1]}\n")[0]
    return [f"{line[:WIDE].rpartition(',')[0]}, ..."]


def plan(run: Path, command: str) -> list[str]:
    """The head and the sum, estimated where no run has left anything."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "config.yaml", folder)
        lines = [line for line in python(Path(folder), "-m", "orce", "plan") if line.startswith(("rule ", "total "))]
    return [lines[0], "...", lines[1]]


def filled(page: str, run: Path, names=("demo", "score", "plan")) -> str:
    """The page with the outputs of these names replaced."""

    def output(found: re.Match) -> str:
        command, name, before = found.groups()
        if name in names:
            text = "\n".join(globals()[name](run, command))
            before = f"```text\n{text}\n```\n"
        return f"```bash\n{command}\n```\n\n<!-- output: {name} -->\n{before}<!-- end -->"

    return BLOCK.sub(output, page)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(), Path(*sys.argv[1:] or [ROOT])))
