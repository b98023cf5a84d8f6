"""Digests of the demo's outputs: prompts, samples, surrogate, candidates, pairs, confidences, training logs, metrics without
provenance, and a table. After `make demo`: python tests/frozen_demo.py

The last bits of a model's numbers depend on the processor, so each kind that was at hand has a file in tests/frozen: AVX2 alone (an AMD,
at 80ae608b), and AVX-512 of an AMD (at 5de0b231), a later AMD (family 26, at 1fa99458, the table later) and an Intel (at 2a45bb73). A run is compared with
the one that it is nearest to. Prompts are equal everywhere; another kind of machine may differ in what a model has made.
"""

import hashlib
import json
import sys
from pathlib import Path

FROZEN = [*(Path(__file__).parent / "frozen").glob("demo-*.sha256")]
OUTPUTS = (
    "results/*/prompts/*.jsonl", "results/*/*/samples.jsonl", "results/*/*/surrogate.csv", "results/*/*/candidates.jsonl",
    "results/*/*/pairs/*.jsonl", "results/*/*/*/confidences.jsonl", "results/*/*/*/training_log.json",
    "results/*/*/*/metrics.json", "paper_tables/ablation.tex",
)  # fmt: skip


def digests(root: Path) -> dict[str, str]:
    paths = sorted(path for pattern in OUTPUTS for path in root.glob(pattern))
    return {str(path.relative_to(root)): hashlib.sha256(content(path)).hexdigest() for path in paths}


def content(path: Path) -> bytes:
    if path.name != "metrics.json":
        return path.read_bytes()
    values = {key: value for key, value in json.loads(path.read_text()).items() if key != "provenance"}
    return json.dumps(values, sort_keys=True).encode()


def differences(found: dict[str, str], kind: Path) -> list[str]:
    """The outputs whose digests differ from a kind's."""
    frozen = {name: digest for digest, name in (line.split("  ") for line in kind.read_text().splitlines())}
    return [name for name in sorted(frozen | found) if frozen.get(name) != found.get(name)]


if __name__ == "__main__":
    found = digests(Path.cwd())
    kind = min(FROZEN, key=lambda kind: len(differences(found, kind)))
    different = differences(found, kind)
    print("\n".join(different) or f"all {len(found)} outputs are those of {kind.name}")
    sys.exit(bool(different))
