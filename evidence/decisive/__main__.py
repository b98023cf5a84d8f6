"""``python -m evidence.decisive COMMAND``: the question "readout or training signal?" (docs/evidence/decisive-plan.md)."""

import argparse
import os
import sys
import time
from pathlib import Path

from evidence.decisive import data, run
from orce.errors import BadInput, explain
from orce.runtime.progress import say


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m evidence.decisive", description=__doc__)
    parser.add_argument("command", choices=["data", "run", "release", "report"])
    parser.add_argument("--from", dest="origin", type=Path, default=os.environ.get("ORCE_EVIDENCE_DATA"))
    parser.add_argument("--cells", nargs="+", choices=list(run.MODELS), default=list(data.CELLS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--arms", nargs="*", default=list(run.TRAINED))
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no step after that; a later run goes on")
    parser.add_argument(
        "--config", nargs="*", default=[], help="files over config/decisive.yaml: other sizes, another model"
    )
    parser.add_argument(
        "--rates", nargs="*", type=float, default=[], help=f"tried for {', '.join(run.TUNED)}; validation chooses"
    )
    options = parser.parse_args(argv)
    try:
        if options.command == "data":
            if options.origin is None:
                raise BadInput("--from: missing; name the folder of the clones (docs/evidence/items.md)")
            for cell in options.cells:
                data.make(cell, Path(options.origin), run.HERE / "data" / cell)
        elif options.command == "run":
            import torch

            torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
            until = time.monotonic() + 60 * options.minutes
            for seed in options.seeds:
                for cell in options.cells:
                    made = run.Cell.of(cell, seed, tuple(options.config), tuple(options.rates))
                    made.until = until
                    say(f"{cell} seed {seed}: {made.run(tuple(options.arms))}")
        elif options.command == "release":
            from evidence.decisive import release

            release.write(options.cells, options.seeds)
        else:
            from evidence.decisive import report

            report.write()
        return 0
    except TimeoutError:
        return 75
    except (BadInput, OSError) as error:
        print(f"evidence.decisive {options.command}: {explain(error)}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
