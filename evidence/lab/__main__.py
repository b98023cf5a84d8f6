"""``python -m evidence.lab COMMAND``: the laboratory's cells, one after the other; what is done stays.

Several of these programs may run side by side: each takes a cell that no other one works on.
"""

import argparse
import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from evidence.lab import arms, report
from evidence.lab.bench import Bench, changed
from evidence.runs import ROOT, RUNS
from orce.runtime import files
from orce.runtime.files import BadInput, explain
from orce.runtime.progress import say
from orce.steps.plan import read_config

LAB = RUNS / "lab"
CHOSEN = ROOT / "evidence" / "lab" / "chosen.json"
CONFIG = ("config.yaml", "evidence/lab/lab.yaml")
GROUPS = tuple(f"{kind}-{numbers}" for kind in ("sums", "counts", "lookups") for numbers in ("values", "digits"))
EXPLORED = [(f"{name}-0", 1) for name in ("lookups-values", "sums-digits", "counts-digits")]
SEEDS = {0: (101, 102, 103), 1: (104, 105), 2: (106,)}  # of the answer models 0, 1 and 2 of a group
ORDER = ("lookups-values", "sums-digits", "counts-digits", "sums-values", "lookups-digits", "counts-values")
UNTAUGHT = ("sums-values-0",)  # 13 % of its kappas are strictly inside (0, 1); an answer model needs 40 %
HELD_OUT = [
    (f"{name}-{number}", SEEDS[number][turn])
    for turn, number in ((0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0))
    for name in ORDER
    if f"{name}-{number}" not in UNTAUGHT
]


def config_of(model: str) -> dict:
    """The laboratory's configuration with this answer model: that of lab.yaml, trained with another seed."""
    group, _, number = model.rpartition("-")
    os.chdir(ROOT)
    config = changed(read_config(list(CONFIG)))
    first = config["models"][f"{group}-0"]
    config["models"][model] = first | {"label": model, "source": first["source"] | {"seed": int(number)}}
    return config


def bench(part: str, model: str, seed: int, lab: Path = LAB) -> Bench:
    part = "explore" if part == "why" else part  # in the same folder: the answers and the warm start are there
    return Bench(config_of(model), model, seed, lab / part / f"{model}-{seed}", lab / "models")


def scales(one: Bench) -> None:
    """Every point of arms.SCALES for a cell, each in a folder of its own."""
    for name in arms.SCALES:
        config, folder = arms.scaled(config_of(one.model), name), one.folder.with_name(f"{one.folder.name}-{name}")
        arms.scale(Bench(config, one.model, one.seed, folder, one.shared, one.until), files.read_json(CHOSEN), name)


def work(part: str, cells: list[tuple[str, int]], do: Callable[[Bench], None], until: float) -> int:
    """Do every cell that no other process has; stops between two arms after the time `until`. 0 if all is done."""
    left = 0
    for model, seed in cells:
        one = bench(part, model, seed)
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
                say(f"{part} {model} seed {seed}: done")
            except TimeoutError:
                return 75
    return 75 if left else 0


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m evidence.lab", description=__doc__)
    parser.add_argument("command", choices=["explore", "choose", "confirm", "why", "scale", "report"])
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after the arm that runs then; exit code 75")
    parser.add_argument("--cells", nargs="+", help="MODEL:SEED, in place of the command's own")
    options = parser.parse_args(argv)
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    cells = HELD_OUT if options.command == "confirm" else EXPLORED
    if options.cells:
        cells = [(name, int(seed)) for name, _, seed in (one.partition(":") for one in options.cells)]
    do = {
        "explore": arms.explore,
        "confirm": lambda one: arms.confirm(one, files.read_json(CHOSEN)),
        "why": lambda one: arms.why(one, files.read_json(CHOSEN)),
        "scale": scales,
    }
    try:
        if options.command == "choose":
            files.write_json(CHOSEN, arms.choose(arms.collected(LAB / "explore")))
            return 0
        if options.command == "report":
            for path in report.write(LAB, files.read_json(CHOSEN), EXPLORED, HELD_OUT, ROOT / "docs"):
                say(os.path.relpath(path))
            return 0
        return work(options.command, cells, do[options.command], time.monotonic() + 60 * options.minutes)
    except (BadInput, OSError) as error:
        print(f"evidence.lab {options.command}: {explain(error)}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(sys.argv[1:]))
