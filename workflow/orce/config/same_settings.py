"""Files that a run keeps have to be the ones that today's settings would make, whatever Snakemake's
records say of them.

Snakemake makes a file again where its record has other parameters. It has no records of unpacked or
copied results, a record of a file that was replaced since says nothing, and `--rerun-triggers
mtime` does not look at parameters. So this compares the settings in the seal of a file with today's,
the parameter `settings` of the rule that makes it.
"""

import contextlib
import copy
import itertools
import json
import logging
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from snakemake.iocontainers import Wildcards
from snakemake.logging import logger

from orce.artefacts import store
from orce.artefacts.files import digest
from orce.config import picking
from orce.errors import BadInput
from orce.runtime.modules import short
from orce.runtime.preflight import tell_replaced
from orce.runtime.process import say

# names of kept files that today's settings would not make
OTHER_SETTINGS = Path(".snakemake/other_settings")
KEEP = "ORCE_KEEP"  # in the environment: such files are kept
NO_SEAL = "no seal"
# A manifest is the seal of the file beside it. A grader's verdicts are sealed without the grouping,
# and the samples of the same job name their digest.
SEALED_ELSEWHERE = (".manifest.json", "/verdicts.jsonl")
READOUT = "readout"
SHARDS = "/shards/"  # in the path of a shard
# How Snakemake's messages begin once ...
TARGETS_ARE_KNOWN = ("Building DAG of jobs",)
PLAN_IS_MADE = ("Job stats", "Nothing to be done", "Creating report")
PLAN_IS_SHOWN = ("This was a dry-run",)


class OnceSnakemakeSays(logging.Filter):
    """A filter of Snakemake's logger that calls `check` at the first message with one of some
    beginnings.

    Snakemake's hook `onstart` is for runs with jobs alone. A dry run, a report and a run with
    nothing to do have none, but each of them says these words; and what a filter of the logger
    raises reaches the caller and ends the run.
    """

    def __init__(self, beginnings: tuple[str, ...], check: Callable[[], None]):
        super().__init__()
        self.beginnings = beginnings
        self.check = check

    def filter(self, record: logging.LogRecord) -> bool:
        if str(record.msg).startswith(self.beginnings):
            logger.removeFilter(self)
            self.check()
        return True


def add_checks(checks: dict[tuple[str, ...], Callable[[], None]]) -> None:
    """Have each check called once Snakemake says one of its beginnings."""
    # An earlier run in this process may have ended before it said them.
    logger.filters = [kept for kept in logger.filters if not isinstance(kept, OnceSnakemakeSays)]
    for beginnings, check in checks.items():
        logger.addFilter(OnceSnakemakeSays(beginnings, check))


class Rule(NamedTuple):
    """How a rule would make files today."""

    settings: str | None  # as JSON; None for a rule without settings
    inputs: list[str] | None  # None where they are not known
    outputs: list[str]


def check_plan(workflow, config) -> None:
    """Raises BadInput if the finished plan keeps, or a report shows, files that today's settings
    would not make.

    Says which tables of another configuration the run replaces, and how to keep what an earlier
    version has made.
    """
    reported = workflow.execution_settings is None
    made_now = set() if reported else set(workflow.dag.needrun_jobs())
    readout = config.evaluation.readout
    if not workflow.touch:
        tell_replaced(config.paper_tables, {str(file) for job in made_now for file in job.output})
        line = recorded_otherwise(workflow, made_now, readout)
        if line and workflow.dryrun:  # at its end, where one looks
            logger.addFilter(OnceSnakemakeSays(PLAN_IS_SHOWN, lambda: say(line)))
        elif line:
            say(line)
    # A touch makes nothing: it gives each file a record that says it was made with today's settings.
    kept = kept_files(workflow, set() if workflow.touch else made_now)
    if os.environ.get(KEEP):
        return
    differing = otherwise_made(kept, readout)
    unsealed = [file for file, reasons in differing.items() if reasons == [NO_SEAL]]
    if workflow.touch and unsealed:
        # Tables and pictures, which an earlier version did not seal. They take seconds.
        say(
            f"{in_short(unsealed)}: {NO_SEAL}; the next run names the command that makes them again"
        )
        for file in unsealed:
            del differing[file]
    refuse_other_settings(differing, workflow.touch)


def kept_files(workflow, made_now: Collection) -> dict[str, list[Rule]]:
    """The files here that the plan needs and none of its jobs makes, each with the rules that could
    make it.

    A file whose rule `--allowed-rules` leaves out is no job's output: it has each rule that can make
    a file of its name, and the files that it was made from are looked at too.
    """
    kept = {}
    planned = set()
    taken = set()
    # In order, so that a message first names a file that the others are made from.
    for job in jobs_in_order(workflow):
        outputs = outputs_of(job)
        planned.update(outputs)
        taken.update(map(str, job.input))
        if job not in made_now:
            kept |= {file: [rule_of(workflow, job)] for file in outputs if Path(file).exists()}
    beyond_the_plan = [*taken - planned]
    while beyond_the_plan:
        file = beyond_the_plan.pop()
        if file in kept or not Path(file).exists():
            continue
        kept[file] = rules_of(workflow, file)
        beyond_the_plan += [name for name in seal_of(file).get("inputs", ()) if name not in planned]
    return {file: rules for file, rules in kept.items() if rules}


def jobs_in_order(workflow) -> Iterator[Any]:
    """The jobs of the plan, also those that need not run, each after the jobs that it waits for."""
    for level in workflow.dag.toposorted():
        yield from sorted(level, key=outputs_of)


def outputs_of(job) -> list[str]:
    return [*map(str, job.output)]


def rule_of(workflow, job) -> Rule:
    """How a job would make its files. A job that joins shards has the settings and inputs of theirs:
    the number of shards changes nothing in the file.
    """
    maker = next(filter(makes_shard, workflow.dag.dependencies[job]), job)
    return Rule(maker.params.get("settings"), [*map(str, maker.input)], outputs_of(job))


def rules_of(workflow, file: str) -> list[Rule]:
    """Each rule that makes files of a name, without its inputs, which may depend on files that are
    not there.
    """
    found = []
    for rule in workflow.rules:
        settings = getattr(rule.params, "settings", None)
        match = next(filter(None, (output.match(file) for output in rule.output)), None)
        if settings is None or match is None:
            continue
        if callable(settings):
            settings = settings(Wildcards(fromdict=match.groupdict()))
        found.append(Rule(settings, None, []))
    return found


def otherwise_made(kept: dict[str, list[Rule]], readout: str) -> dict[str, list[str]]:
    """{file: what differs} of the kept files that none of their rules would make so today.

    Their seal has other settings or other inputs, names an input that has changed, or is missing.
    readout: of confidences, whose seal has it beside the settings.
    """
    differing = {}
    for file, rules in kept.items():
        if file.endswith(SEALED_ELSEWHERE):
            continue
        seal = seal_of(file)
        if not seal:
            differing[file] = [NO_SEAL]
            continue
        differences = [differences_of(seal, rule, readout) for rule in rules]
        if all(differences):
            differing[file] = differences[0]
        elif other_input := store.find_changed_input(Path(file), seal):
            differing[file] = [f"made from another {other_input} than there is now"]
    return differing


def seal_of(file: str) -> dict[str, Any]:
    """The seal beside a file, or the one of its folder; {} without one."""
    beside = store.manifest_path(Path(file))
    seal = beside if beside.exists() else Path(file).with_name(store.FOLDER_MANIFEST)
    return store.read_manifest(seal) if seal.exists() else {}


def differences_of(seal: dict[str, Any], rule: Rule, readout: str) -> list[str]:
    """The settings that differ, each with its values, and then the inputs that do."""
    made = made_with(seal)
    # A rule without settings depends on its inputs alone.
    now = made if rule.settings is None else json.loads(rule.settings)
    made = in_todays_keys(made, now)
    if READOUT in made:
        now = now | {READOUT: readout}
    differences = [] if digest(made) == digest(now) else [*changes(made, now)]
    return differences + other_inputs(seal, rule, now)


def made_with(seal: dict[str, Any]) -> dict[str, Any]:
    """The settings in a seal. Earlier versions wrote none for weights; some are among its facts."""
    if "settings" in seal:
        return seal["settings"]
    return {key: seal[key] for key in ("hub", "revision", "package") if key in seal}


def in_todays_keys(made: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Settings of an earlier version, without keys that always had one value, and with today's names."""
    made = copy.deepcopy(made)
    if made.get("reader") == "transformers":
        del made["reader"]
    training = made.get("training")
    if isinstance(training, dict) and training.get("shared_prefix") is True:
        del training["shared_prefix"]
    for name in ("scored", "model_read"):
        if "of" in made and name in now:
            made[name] = made.pop("of")
    return made


def other_inputs(seal: dict[str, Any], rule: Rule, settings: dict[str, Any]) -> list[str]:
    """The inputs of a rule that its file was made without, and the files that it was made from too.

    Not every stage reads all inputs of its rule. Missing is one that lies beside a file that was
    read, such as the prompts of a further split. Left out are manifests, which a job may read without
    the files that they describe, and weights and data that the settings name.
    """
    if rule.inputs is None:
        return []
    read = set(seal.get("inputs", ()))
    for path in [*read]:
        if SHARDS in path:
            read.remove(path)
            read.update(seal_of(path).get("inputs", ()))
    named = {store.run_path(path) for path, _ in picking.local_paths(settings)}
    needed = {path for path in map(store.run_path, rule.inputs) if path} - named
    allowed = needed | {described_by(path) for path in needed} | named | {*rule.outputs}
    folders = {Path(path).parent for path in read}
    different = []
    for path in sorted(needed - read):
        if Path(path).parent in folders and not path.endswith("manifest.json"):
            different.append(f"made without {path}")
    return different + [f"made from {path} too" for path in sorted(read - allowed)]


def makes_shard(job) -> bool:
    return SHARDS in str(job.output)


def described_by(path: str) -> str:
    """The file or folder of a manifest."""
    return path.removesuffix(f"/{store.FOLDER_MANIFEST}").replace(".manifest.json", ".jsonl")


def changes(before: Any, now: Any, key: str = "") -> Iterator[str]:
    """Each key, dotted, whose value in one mapping is not that in the other."""
    if not isinstance(before, dict) or not isinstance(now, dict):
        if before != now:
            yield f"{key}: {short(before)}, now {short(now)}"
        return
    for name in sorted(before.keys() | now.keys()):
        yield from changes(before.get(name), now.get(name), f"{key}.{name}".lstrip("."))


def recorded_otherwise(workflow, made_now: set, readout: str) -> str:
    """A line on the jobs that run for other parameters in Snakemake's records alone: their seals have
    today's settings and inputs. Empty without such jobs.
    """
    same = set()
    for job in jobs_in_order(workflow):
        if job not in made_now:
            continue
        # Shards are missing where one job has made the whole.
        before = set()
        for other in workflow.dag.dependencies[job]:
            if other in made_now and not makes_shard(other):
                before.add(other)
        # What follows only jobs that make the same again runs for that alone.
        reason = workflow.dag.reason(job)
        recorded = reason.params_changed or reason.input_changed or before
        if not recorded or reason.forced or not before <= same:
            continue
        rule = rule_of(workflow, job)
        kept = {file: [rule] for file in outputs_of(job)}
        there = kept and all(Path(file).exists() for file in kept)
        if there and not otherwise_made(kept, readout):
            same.add(job)
    if not same:
        return ""
    return (
        f"{len(same)} of {len(made_now)} jobs would make again what is there and was made with these settings: Snakemake's "
        "records have other parameters, as those of an earlier version; to keep it, once and with the same configuration: "
        "snakemake --touch -F -- all"
    )


def refuse_other_settings(differing: dict[str, list[str]], touch: bool) -> None:
    """Raises BadInput if there are files that today's settings would not make, {file: what differs}."""
    if not differing:
        return
    with contextlib.suppress(OSError):  # a folder that is only looked at
        OTHER_SETTINGS.parent.mkdir(exist_ok=True)
        OTHER_SETTINGS.write_text("\n".join(differing) + "\n")
    reasons = list(dict.fromkeys(itertools.chain.from_iterable(differing.values())))
    shown = "; ".join(reasons[:3]) + ("; ..." if reasons[3:] else "")
    again = f"-R $(cat {OTHER_SETTINGS})"
    if touch:
        again = f"--rerun-triggers mtime -f -- $(cat {OTHER_SETTINGS}), and then this command"
    raise BadInput(
        f"{in_short([*differing])}: made with other settings than now ({shown}), and Snakemake would keep them; to make them "
        f"again: {again}; to keep them: {KEEP}=1 before the command"
    )


def in_short(files: list[str]) -> str:
    first, *others = files
    return f"{first} and {len(others)} more files" if others else first
