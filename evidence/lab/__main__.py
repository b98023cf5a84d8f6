"""``python -m evidence.lab COMMAND``: the laboratory's cells, one after the other; what is done stays.

Several of these programs may run side by side: each takes a cell that no other one works on.
"""

import argparse
import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from evidence.lab import arms, report
from evidence.lab.bench import Bench
from evidence.lab.experiments import EXPERIMENTS
from evidence.runs import ROOT
from orce.artefacts import files
from orce.errors import BadInput, explain
from orce.runtime.progress import say


def scales(one: Bench, chosen: dict[str, dict]) -> None:
    """Every point of arms.SCALES for a cell, each in a folder of its own."""
    for name in arms.SCALES:
        config, folder = arms.scaled(one.config, name), one.folder.with_name(f"{one.folder.name}-{name}")
        arms.scale(Bench(config, one.model, one.seed, folder, one.shared, one.until), chosen, name)


B = TypeVar("B", bound=Bench)


def work(cells: Iterable[B], do: Callable[[B], None], until: float) -> int:
    """Do every cell that no other process has; stops between two arms after the time `until`. 0 if all is done."""
    left = 0
    for one in cells:
        one.folder.mkdir(parents=True, exist_ok=True)
        with open(one.folder / ".lock", "w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                left += 1
                continue
            one.until = until
            try:
                do(one)
                say(f"{one.folder.parent.name} {one.model} seed {one.seed}: done")
            except TimeoutError:
                return 75
    return 75 if left else 0


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m evidence.lab", description=__doc__)
    parser.add_argument("command", choices=["explore", "choose", "confirm", "why", "scale", "report"])
    parser.add_argument("--of", choices=EXPERIMENTS, default="lab", help="models from scratch (lab), or SmolLM2")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after the arm that runs then; exit code 75")
    parser.add_argument("--cells", nargs="+", help="MODEL:SEED, in place of the command's own")
    options = parser.parse_args(argv)
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    of = EXPERIMENTS[options.of]
    cells = of.held_out if options.command == "confirm" else of.explored
    if options.cells:
        cells = [(name, int(seed)) for name, _, seed in (one.partition(":") for one in options.cells)]
    do = {
        "explore": lambda one: arms.explore(one, of.grid),
        "confirm": lambda one: arms.confirm(one, of.settings(), of.tested),
        "why": lambda one: arms.why(one, of.settings()),
        "scale": lambda one: scales(one, of.settings()),
    }
    try:
        if options.command == "choose":
            files.write_json(of.chosen, arms.choose(arms.collected(of.folder / "explore")))
            return 0
        if options.command == "report":
            for path in report.write(of, ROOT / "docs"):
                say(os.path.relpath(path))
            return 0
        part = "explore" if options.command == "why" else options.command  # beside the answers and the warm start
        benches = (of.bench(part, model, seed) for model, seed in cells)
        return work(benches, do[options.command], time.monotonic() + 60 * options.minutes)
    except (BadInput, OSError) as error:
        print(f"evidence.lab {options.command}: {explain(error)}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(sys.argv[1:]))
