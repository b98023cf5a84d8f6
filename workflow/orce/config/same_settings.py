"""Files that a run keeps have to be the ones that today's settings would make, whatever Snakemake's records say of them.

Snakemake makes a file again where its record has other parameters. It has no records of unpacked or copied results, a record of
a file that was replaced since says nothing, and `--rerun-triggers mtime` does not look at parameters. The settings of a file are
in its seal; today's are the parameter `settings` of the rule that makes it.
"""

import contextlib
import itertools
import json
import logging
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from snakemake.iocontainers import Wildcards

from orce.artefacts import store
from orce.artefacts.files import digest
from orce.errors import BadInput
from orce.runtime.modules import short
from orce.runtime.preflight import tell_replaced

# names of kept files that today's settings would not make
OTHER_SETTINGS = Path(".snakemake/other_settings")
KEEP = "ORCE_KEEP"  # in the environment: such files are kept


TARGETS_ARE_KNOWN = ("Building DAG of jobs",)
PLAN_IS_MADE = ("Job stats", "Nothing to be done", "Creating report")


class OnceSnakemakeSays(logging.Filter):
    """A filter of Snakemake's logger that calls `check` at the first message with one of some beginnings.

    Snakemake has no hook that a dry run, a report and a run with nothing to do have too: `onstart` is for runs with jobs alone.
    But each of them says these words, and what a filter of the logger raises reaches the caller and ends the run.
    """

    def __init__(self, beginnings: tuple[str, ...], check: Callable[[], None]):
        super().__init__()
        self.beginnings = beginnings
        self.check = check

    def filter(self, record: logging.LogRecord) -> bool:
        if str(record.msg).startswith(self.beginnings):
            logging.getLogger(record.name).removeFilter(self)
            self.check()
        return True


def add_checks(logger: logging.Logger, checks: dict[tuple[str, ...], Callable[[], None]]) -> None:
    """Have each check called once Snakemake says one of its beginnings."""
    for left in [each for each in logger.filters if isinstance(each, OnceSnakemakeSays)]:
        # of an earlier run in this process, which ended before it said them
        logger.removeFilter(left)
    for beginnings, check in checks.items():
        logger.addFilter(OnceSnakemakeSays(beginnings, check))


def check_plan(workflow, config) -> None:
    """Raises BadInput if the finished plan keeps, or a report shows, files that today's settings would not make.

    Says which tables of another configuration the run replaces.
    """
    reported = workflow.execution_settings is None
    made_now = set() if reported else set(workflow.dag.needrun_jobs())
    if not workflow.touch:
        tell_replaced(config.paper_tables, {str(file) for job in made_now for file in job.output})
    # A touch makes nothing: it gives each file a record that says it was made with today's settings.
    kept = kept_files(workflow, set() if workflow.touch else made_now)
    if os.environ.get(KEEP):
        return
    refuse_other_settings(
        otherwise_made(kept, config.evaluation.readout, unsealed_too=not workflow.touch)
    )


def kept_files(workflow, made_now: Collection) -> dict[str, list[str]]:
    """{file: today's settings, as JSON} of the files here that the plan needs and none of its jobs makes.

    A file of a rule that `--allowed-rules` leaves out has the settings of each rule that can make a file of its name, and the
    files that it was made from are looked at too.
    """
    kept = {}
    planned = set()
    taken = set()
    # The first file that a message names is then one that the others are made from.
    levels = workflow.dag.toposorted()
    in_order = list(
        itertools.chain.from_iterable(sorted(level, key=outputs_of) for level in levels)
    )
    for job in in_order:
        outputs = outputs_of(job)
        planned.update(outputs)
        taken.update(str(file) for file in job.input)
        settings = job.params.get("settings")
        if settings is not None and job not in made_now:
            kept |= {file: [settings] for file in outputs if Path(file).exists()}
    beyond_the_plan = [*taken - planned]
    while beyond_the_plan:
        file = beyond_the_plan.pop()
        if file in kept or not Path(file).exists():
            continue
        kept[file] = settings_of_its_rules(workflow, file)
        beyond_the_plan += [name for name in seal_of(file).get("inputs", ()) if name not in planned]
    return {file: settings for file, settings in kept.items() if settings}


def outputs_of(job) -> list[str]:
    return [str(file) for file in job.output]


def settings_of_its_rules(workflow, file: str) -> list[str]:
    """Today's settings of a file, as JSON, by each rule that makes files of its name."""
    found = []
    for rule in workflow.rules:
        settings = getattr(rule.params, "settings", None)
        match = next(filter(None, (output.match(file) for output in rule.output)), None)
        if settings is not None and match is not None:
            found.append(
                settings(Wildcards(fromdict=match.groupdict())) if callable(settings) else settings
            )
    return found


def otherwise_made(
    kept: dict[str, list[str]], readout: str, unsealed_too: bool
) -> dict[str, list[str]]:
    """{file: what differs} of the kept files whose seal has other settings than today's, or names another input than is there.

    readout: of confidences, whose seal has it beside the settings. unsealed_too: also the files without a seal.
    """
    differing = {}
    for file, candidates in kept.items():
        if file.endswith(".manifest.json"):  # the seal of the file beside it
            continue
        seal = seal_of(file)
        if not seal:
            if unsealed_too:
                differing[file] = ["no seal"]
            continue
        differences = [
            differences_of(seal, json.loads(settings), readout) for settings in candidates
        ]
        if all(differences):
            differing[file] = differences[0]
        elif other_input := store.find_changed_input(Path(file), seal):
            differing[file] = [f"made from another {other_input} than there is now"]
    return differing


def seal_of(file: str) -> dict[str, Any]:
    """The seal beside a file, or the one of its folder; {} without one."""
    beside = store.manifest_path(Path(file))
    seal = beside if beside.exists() else Path(file).with_name(store.FOLDERS)
    return store.read_manifest(seal) if seal.exists() else {}


def differences_of(seal: dict[str, Any], now: dict[str, Any], readout: str) -> list[str]:
    """The settings that differ, each with its values. A seal without settings has some of them among its facts."""
    made = seal.get("settings")
    if made is None:
        made = {key: seal[key] for key in now if key in seal and key not in store.PLACE_AND_CONTENT}
        now = {key: now[key] for key in made}
    if "readout" in made and "readout" not in now:
        now = now | {"readout": readout}
    return [] if digest(made) == digest(now) else [*changes(made, now)]


def changes(before: Any, now: Any, key: str = "") -> Iterator[str]:
    """Each key, dotted, whose value in one mapping is not that in the other."""
    if not isinstance(before, dict) or not isinstance(now, dict):
        if before != now:
            yield f"{key}: {short(before)}, now {short(now)}"
        return
    for name in sorted(before.keys() | now.keys()):
        yield from changes(before.get(name), now.get(name), f"{key}.{name}".lstrip("."))


def refuse_other_settings(differing: dict[str, list[str]]) -> None:
    """Raises BadInput if there are files that today's settings would not make: {file: what differs}."""
    if not differing:
        return
    with contextlib.suppress(OSError):  # a folder that is only looked at
        OTHER_SETTINGS.parent.mkdir(exist_ok=True)
        OTHER_SETTINGS.write_text("\n".join(differing) + "\n")
    first, *others = differing
    files = f"{first} and {len(others)} more files" if others else first
    reasons = list(dict.fromkeys(reason for reasons in differing.values() for reason in reasons))
    shown = f" ({'; '.join(reasons[:3])}{'; ...' if reasons[3:] else ''})" if reasons else ""
    raise BadInput(
        f"{files}: made with other settings than now{shown}, and Snakemake would keep them; to make them again: "
        f"-R $(cat {OTHER_SETTINGS}); to keep them: {KEEP}=1 before the command"
    )
