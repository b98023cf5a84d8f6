"""``python -m orce STEP ...``: every step of the workflow, to be run, timed and debugged by hand.

A step is a module of orce.steps, found by its name. Bad input ends with one line and exit code 2.
"""

import argparse
import importlib
import os
import pkgutil
import signal
import sys

import orce.steps
from orce.runtime.files import BadInput, explain

# Progress is ours (orce.runtime.progress): the libraries' own bars would garble the logs of jobs that run side by side.
QUIET = {
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_VERBOSITY": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "TQDM_DISABLE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def main(argv: list[str]) -> int:
    names = sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(orce.steps.__path__))
    parser = argparse.ArgumentParser(prog="python -m orce", description="One step of the ORCE workflow.")
    parser.add_argument("step", choices=names, help="a step; `python -m orce STEP --help` lists its arguments")
    name = parser.parse_args(argv[:1]).step
    for key, value in QUIET.items():
        os.environ.setdefault(key, value)
    step = importlib.import_module(f"orce.steps.{name.replace('-', '_')}")
    options = argparse.ArgumentParser(prog=f"python -m orce {name}", description=step.__doc__)
    step.add_arguments(options)
    try:
        step.run(options.parse_args(argv[1:]))
    except (BadInput, OSError) as error:
        print(f"orce {name}: {explain(error)}", file=sys.stderr)
        return 2
    return 0


def _stop(signum, frame):
    """Ends a step as an exception would, so that it cleans up behind itself. What it has finished stays on disk."""
    signal.signal(signum, signal.SIG_DFL)
    os.write(2, b"orce: ended by SIGTERM; run again, it goes on from what is finished\n")
    raise SystemExit(128 + signum)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)  # of the program, not of a process that calls main
    sys.exit(main(sys.argv[1:]))
