"""The runs: one folder a (variant, seed), in which Snakemake is started as a user would start it.

base is all methods and rewards; a variant changes one thing and needs SFT and ORCE only. A variant begins with the
results of the base run of its seed, as hard links, and with Snakemake's records of them. The records name each file's
inputs and params by relative path, so Snakemake's own rerun triggers find what the variant's change concerns and make
that again. Nothing is written through a link: Snakemake deletes the outputs of a job before it runs, and the steps
write a new file and rename it. Logs and benchmarks are overwritten in place, so they are not linked.
"""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from benchmarks import machine

from orce import methods
from orce.artefacts import files
from orce.config import layout
from orce.config.cells import RESULTS, Cell
from orce.config.load import read_config
from orce.config.schema import Config
from orce.errors import BadInput
from orce.reports import provenance
from orce.runtime.progress import say

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RUNS = HERE / "runs"
BASE = "base"
MODEL = "smollm2"
VARIANT_DATASETS, VARIANT_METHODS = ("arithmetic", "worldfacts"), ("sft", "orce")
IN_PLACE = ("logs", "benchmarks")  # folders of results/ whose files are opened for writing again
RECORDS = Path(".snakemake", "metadata")
LOG, MACHINE = "snakemake.log", "machine.json"


@dataclass(frozen=True, order=True)
class Run:
    variant: str
    seed: int
    runs: Path = RUNS

    def __str__(self) -> str:
        return f"{self.variant}, seed {self.seed}"

    @property
    def folder(self) -> Path:
        return self.runs / f"{self.variant}-{self.seed}"

    @property
    def base(self) -> "Run":
        return Run(BASE, self.seed, self.runs)

    @property
    def configfiles(self) -> list[Path]:
        """What overrides config.yaml, in this order."""
        own = [] if self.variant == BASE else [HERE / "variants" / f"{self.variant}.yaml"]
        return [ROOT / "config" / "demo.yaml", HERE / "base.yaml", *own]

    def config(self) -> Config:
        """The whole configuration, checked."""
        return msgspec.structs.replace(_config(*self.configfiles), seed=self.seed)


@functools.cache
def _config(*over: Path) -> Config:
    with contextlib.chdir(ROOT):  # the task's path begins there
        return read_config(["config.yaml", *map(str, over)])


def variants() -> list[str]:
    """Names of all variants, those of evidence/variants/*.yaml."""
    return sorted(path.stem for path in (HERE / "variants").glob("*.yaml"))


def planned(chosen: Iterable[str], seeds: Iterable[int], runs: Path = RUNS) -> list[Run]:
    """The runs in their order: base for every seed, on which the variants build."""
    seeds = list(seeds)
    return [Run(variant, seed, runs) for variant in (BASE, *chosen) for seed in seeds]


def datasets(variant: str) -> list[str]:
    """The datasets of a run."""
    if variant != BASE:
        return list(VARIANT_DATASETS)
    config = Run(BASE, 0).config()
    return list(dict.fromkeys(config.tables[name].dataset for name in config.paper_tables))


def targets(variant: str, only: Iterable[str] | None = None) -> list[str]:
    """The metrics.json files that a run makes, of some datasets or of all."""
    if variant == BASE:
        config = Run(BASE, 0).config()
        registry, tables = methods.of(config), [config.tables[name] for name in config.paper_tables]
        cells = [path for table in tables for _, path in layout.cells(table, registry)]
    else:
        cells = [Cell(data, MODEL).metrics(method) for data in VARIANT_DATASETS for method in VARIANT_METHODS]
    return [path for path in dict.fromkeys(cells) if only is None or path.split("/")[1] in only]


# Starting one


def run(runs: Iterable[Run], only: list[str] | None, cores: str) -> int:
    """Do all runs, the next one also where one fails; the exit code of the first that failed, else 0."""
    codes: dict[Run, int] = {}
    for one in runs:
        wanted = targets(one.variant, only)
        if not wanted:
            say(f"{one}: has none of {', '.join(only or [])}")
        elif codes.get(one.base):
            say(f"{one}: left out, since {one.base} failed")
        else:
            codes[one] = _one(one, wanted, cores)
    return next((code for code in codes.values() if code), 0)


def _one(one: Run, wanted: list[str], cores: str) -> int:
    prepare(one)
    log = one.folder / LOG
    say(f"{one}: {len(wanted)} cells; {os.path.relpath(log)}")
    started = time.monotonic()
    with recorded(one.folder / MACHINE) as attempt:
        code = attempt["exit"] = started_in(one.folder, command(one, wanted, cores), log)
    ended = "done" if code == 0 else f"FAILED with exit code {code}, see the log,"
    say(f"{one}: {ended} after {(time.monotonic() - started) / 60:.1f} min")
    return code


def command(one: Run, wanted: list[str], cores: str) -> list[str]:
    """Snakemake's command line for a run, to be started in its folder."""
    program = [str(Path(sys.executable).with_name("snakemake")), "--snakefile", str(ROOT / "Snakefile")]
    profile = ["--workflow-profile", str(ROOT / "profiles" / "default"), "--keep-going", "--cores", cores]
    config = ["--configfile", *map(str, one.configfiles), "--config", f"seed={one.seed}"]
    return [*program, *profile, *config, "--", *wanted]


def prepare(one: Run) -> None:
    """Make a run's folder: config.yaml, the files that base.yaml names, and the results that it begins with."""
    one.folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / "config.yaml", one.folder / "config.yaml")
    # As links at the same relative paths: settings then name no folder of this machine, and digests are the same on all.
    for name, place in (("mmlu_halves.py", HERE / "mmlu_halves.py"), ("runs/data", one.runs / "data")):
        link = one.folder / "evidence" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(os.path.relpath(place, link.parent))
    if not (one.folder / RESULTS).exists():  # else a killed run goes on with what it has
        begin(one)


def begin(one: Run) -> None:
    """Give a run the results that it begins with: a variant those of base, another seed of base the converted model."""
    if one.variant != BASE:
        if not (one.base.folder / RESULTS).exists():
            raise BadInput(f"{one.base.folder}: no results; {one} builds on the run {one.base}: do that first")
        link_results(one.base.folder, one.folder)
    else:
        converted = sorted(one.runs.glob(f"*/{RESULTS}/models/*/manifest.json"))  # the same for every seed
        if converted:
            link_results(converted[0].parents[3], one.folder, Path(*converted[0].parts[-3:-1]))


def link_results(origin: Path, folder: Path, part: Path = Path()) -> None:
    """Hard-link the results of the run in `origin`, or this `part` of them, and copy Snakemake's records.

    The links appear together, after the records, so a run that is killed here begins again. Hidden files are not linked:
    jobs keep them for resuming and open them for writing again.
    """
    work = folder / f"{RESULTS}.linking"
    shutil.rmtree(work, ignore_errors=True)
    ignored = shutil.ignore_patterns(".*", *IN_PLACE)
    shutil.copytree(origin / RESULTS / part, work / part, copy_function=os.link, ignore=ignored)
    # Without `incomplete` beside them, Snakemake takes the records for those of an old version and migrates them.
    (folder / RECORDS).with_name("incomplete").mkdir(parents=True, exist_ok=True)
    if (origin / RECORDS).exists():  # records of files that are not there are never read
        shutil.copytree(origin / RECORDS, folder / RECORDS, dirs_exist_ok=True)
    os.replace(work, folder / RESULTS)


def started_in(folder: Path, command: list[str], log: Path) -> int:
    """Exit code of a command that appends its output to `log`; it ends when this process is told to end."""
    with open(log, "a") as handle:
        child = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=handle, stderr=handle, start_new_session=True
        )
        try:
            return child.wait()
        except BaseException:  # SIGTERM or Ctrl-C: the jobs end too; the next run resumes them
            os.killpg(child.pid, signal.SIGTERM)
            child.wait()
            raise


# Where and how long


@contextlib.contextmanager
def recorded(path: Path):
    """Write the machine and this attempt's commit, times and exit code to `path`, after those of earlier attempts."""
    known = files.read_json(path) if path.exists() else {"attempts": []}
    facts = machine.facts(threads=1)
    stays = {key: facts[key] for key in ("cpu", "cores", "system", "python", "packages")}
    attempt: dict[str, Any] = {
        "commit": provenance.commit(),
        "started": _now(),
        "ended": None,
        "seconds": None,
        "exit": None,
    }
    begun = time.monotonic()
    record = {**stays, "attempts": [*known["attempts"], attempt]}
    files.write_json(path, record)
    try:
        yield attempt
    finally:
        attempt |= {"ended": _now(), "seconds": round(time.monotonic() - begun, 1)}
        files.write_json(path, record | {"seconds": round(sum(one["seconds"] or 0 for one in record["attempts"]), 1)})


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
