"""The configuration of a run from its files, as Snakemake merges them, for programs beside the workflow."""

import copy
from pathlib import Path
from typing import Any

import msgspec

from orce.config import check, read
from orce.config.schema import Config
from orce.runtime.process import say

PAPER = Path(__file__).with_name("paper.yaml")  # the project's config.yaml, as the wheel carries it


def here(more: list[str]) -> Config:
    """The configuration of the run in this folder, with more files on top; the paper's where no config.yaml is."""
    base = Path("config.yaml")
    if not base.exists():
        say("no config.yaml in this folder: starting from the paper's configuration")
    return read_config([str(base if base.exists() else PAPER), *more])


def read_config(paths: list[str]) -> Config:
    """The configuration as Snakemake reads it: later files override keys of earlier ones; checked."""
    config: dict[str, Any] = {}
    for path in paths:
        _override(config, read.mapping(path))
    return check.check(config)


def paper() -> Config:
    """The paper's configuration, as it is shipped."""
    return msgspec.convert(read.mapping(PAPER), Config)


def _override(base: dict[str, Any], over: dict[str, Any]) -> None:
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            _override(base[key], value)
        else:
            base[key] = copy.deepcopy(value)
