"""Files that were made with other settings than the rules would make them with now."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orce.artefacts import store
from orce.artefacts.files import digest
from orce.config.schema import Config
from orce.runtime.modules import short


def otherwise(workflow: Any, config: Config) -> dict[str, list[str]]:
    """{file: its settings that have changed, each with its values} of the files here that Snakemake would keep whatever they
    were made with: it has no record of them, and is not told to make them again. A file that it is to touch gets a record.

    A file's settings are in its seal; the present ones are the parameter `settings` of the rule that makes such a file.
    """
    from snakemake.io import IOFile
    from snakemake.iocontainers import Wildcards

    asked, changed = workflow.dag_settings, {}
    forced = {*asked.forcerun, *(asked.targets if asked.forcetargets else ())}
    if asked.forceall and not workflow.touch:
        return {}
    for seal in Path(store.RESULTS).rglob("*manifest.json"):
        stem = str(seal).removesuffix("manifest.json")
        paths = str(seal), f"{stem}jsonl", f"{stem}csv", f"{stem}json"
        for rule, path in itertools.product(workflow.rules, paths):
            current = getattr(rule.params, "settings", None)
            found = current and next((match for file in rule.output if (match := file.match(path))), None)
            if not found or not Path(path).exists():
                continue
            recorded = workflow.persistence.metadata(IOFile(path)) is not None
            if recorded and not workflow.touch or {path, rule.name} & forced:
                continue
            made = store.facts(path.removesuffix("/manifest.json")).get("settings")
            now = json.loads(current(Wildcards(fromdict=found.groupdict())))
            if made and "readout" in made:  # of a confidence LLM: an option that is in no settings
                now["readout"] = config.evaluation.readout
            if made is not None and digest(made) != digest(now):
                changed[path] = [*changes(made, now)]
    return changed


def changes(before: Any, now: Any, key: str = "") -> Iterator[str]:
    """Each key, dotted, whose value in one mapping is not that in the other."""
    if not isinstance(before, dict) or not isinstance(now, dict):
        if before != now:
            yield f"{key}: {short(before)}, now {short(now)}"
        return
    for name in sorted(before.keys() | now.keys()):
        yield from changes(before.get(name), now.get(name), f"{key}.{name}".lstrip("."))
