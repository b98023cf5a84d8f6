"""Digests of the demo's outputs: prompts, samples, surrogate, candidates, pairs, confidences, training logs, metrics without
provenance, and the .tex files without it. After `make demo`: python tests/frozen_demo.py

The last bits of a model's numbers depend on the processor, so there is a file for those with AVX2 alone (made on an AMD at 80ae608b), and
for those with AVX-512 one of AMD (made at 5de0b231) and one of Intel (made at 2a45bb73). Another kind of machine may differ in what a
model has made; prompts are equal everywhere.
"""

import hashlib
import json
import sys
from pathlib import Path

from orce.runtime import machine

PROCESSOR = machine.processor()
VENDOR = "intel" if "Intel" in PROCESSOR else "amd"
KIND = f"avx512-{VENDOR}" if "AVX-512" in PROCESSOR else "avx2"
FROZEN = Path(__file__).with_name("frozen") / f"demo-{KIND}.sha256"
OUTPUTS = (
    "results/*/prompts/*.jsonl", "results/*/*/samples.jsonl", "results/*/*/surrogate.csv", "results/*/*/candidates.jsonl",
    "results/*/*/pairs/*.jsonl", "results/*/*/*/confidences.jsonl", "results/*/*/*/training_log.json",
    "results/*/*/*/metrics.json", "paper_tables/*.tex",
)  # fmt: skip


def digests(root: Path) -> dict[str, str]:
    paths = sorted(path for pattern in OUTPUTS for path in root.glob(pattern))
    return {str(path.relative_to(root)): hashlib.sha256(content(path)).hexdigest() for path in paths}


PROVENANCE = (b"Configuration digest", b"git commit", b"packages")  # of tables.tex, where its lines begin


def content(path: Path) -> bytes:
    if path.name == "tables.tex":
        return b"".join(line for line in path.read_bytes().splitlines(True) if not line.startswith(PROVENANCE))
    if path.name != "metrics.json":
        return path.read_bytes()
    values = {key: value for key, value in json.loads(path.read_text()).items() if key != "provenance"}
    return json.dumps(values, sort_keys=True).encode()


def differences(root: Path) -> list[str]:
    frozen = {name: digest for digest, name in (line.split("  ") for line in FROZEN.read_text().splitlines())}
    found = digests(root)
    return [name for name in sorted(frozen | found) if frozen.get(name) != found.get(name)]


if __name__ == "__main__":
    different = differences(Path.cwd())
    print("\n".join(different) or f"all {len(digests(Path.cwd()))} outputs are the frozen ones")
    sys.exit(bool(different))
