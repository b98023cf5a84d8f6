"""One job of the workflow: what it reads, its options, and running it here, with all that it reads, without Snakemake.

The graph (orce.config.graph) says which stages a stage reads; the signature of the stage's `run` says which of its parameters
have their files. workflow/rules and `make` ask the same functions.
"""

import functools
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, get_type_hints

from orce import stages
from orce.artefacts import store
from orce.artefacts.files import digest
from orce.config import cells, graph
from orce.config import settings as of_config
from orce.config.graph import Stage
from orce.config.schema import Config
from orce.runtime.modules import short
from orce.stage_settings import Settings, plain

Files = dict[str, Any]  # {parameter of run: its file, or its files}


def settings(config: Config, stage: Stage) -> Settings | None:
    """The settings of a stage; None for one that reads nothing of the configuration."""
    return stages.of(stage.rule, config, *stage.cell, stage.name.rpartition("/")[2])


def inputs(config: Config, stage: Stage) -> Files:
    """The files of a stage's parameters, and those that its job waits for: the seals of what it reads, `base` of its model."""
    rule = graph.RULES[stage.rule]
    read, model = rule.reads(config, stage), rule.loads(config, stage)
    paths = {"manifests": [source.manifest for source in read.pop("manifests", [])]}
    paths |= {name: [source.files[0] for source in sources] for name, sources in read.items()}
    paths |= {name: [cells.prompts(*split) for split in splits] for name, splits in rule.prompts(config, stage).items()}
    unread = {name for name in paths if paths[name]} - parameters(stage.rule).keys()
    assert not unread, f"stages/{stage.rule}.py: run has no parameter for {', '.join(unread)}, which it reads"
    files: Files = {}
    for name, kind in parameters(stage.rule).items():
        if paths.get(name):
            files[name] = paths[name] if kind in (list[str], stages.Prompts) else paths[name][0]
    beside = [file for sources in read.values() for source in sources for file in source.files[1:]]
    if sealed := [file for file in beside if file.endswith(".manifest.json")]:
        files["sealed"] = sealed
    if model and (base := of_config.awaited(config, model)):
        files["base"] = base
    return files


def options(arguments: dict[str, Any]) -> list[str]:
    """The options of a command for some arguments of a stage's `run`."""
    words = []
    for name, value in arguments.items():
        values = [f"{key}={path}" for key, path in value.items()] if isinstance(value, dict) else value
        words.append(f"--{name.replace('_', '-')}")
        words += [] if value is True else values if isinstance(values, list) else [str(values)]
    return words


def arguments(rule: str, files: Files) -> dict[str, Any]:
    """The arguments of a stage's `run` for its files: {split: file} of prompts, the folders of weights."""
    given: dict[str, Any] = {}
    for name, kind in parameters(rule).items():
        if name in files:
            paths = [files[name]] if isinstance(files[name], str) else [*files[name]]
            if kind == stages.Prompts:
                given[name] = {Path(path).stem: path for path in paths}
            elif kind == list[str]:
                given[name] = paths
            else:
                given[name] = paths[0].removesuffix("/manifest.json")
    return given


def make(
    config: Config,
    stage: Stage,
    ran: Callable[[Stage], Any] = lambda stage: None,
    root: Path = Path(),
    done: set[Stage] | None = None,
) -> None:
    """Make the files of a stage below the folder `root`, and first those that it reads.

    ran: called after each stage that was made here. done: stages that are not made again, to which those made here are added;
    by default those whose files are there. A stage that is made again from the same inputs, with the same settings, reads its
    finished chunks. Models, data and modules are named from the current folder.
    """
    out, *more = stage.files
    if (root / out).exists() if done is None else stage in done:
        return
    rule = graph.RULES[stage.rule]
    for sources in rule.reads(config, stage).values():
        for source in sources:
            make(config, source, ran, root, done)
    for splits in rule.prompts(config, stage).values():
        for dataset, split in splits:
            freeze(config, dataset, split, root)
    files = inputs(config, stage)
    if base := files.get("base"):
        convert(config, rule.loads(config, stage) or "", Path(base))
    paths = arguments(stage.rule, files) | {"out": str(Path(out).parent) if out.endswith("/manifest.json") else out}
    for path in (*more, *(f"{stage.cell.folder}/{file.format(name=stage.name)}" for file in rule.beside)):
        if (name := Path(path).name.split(".")[-2]) in parameters(stage.rule):
            paths[name] = path
    chosen = settings(config, stage)
    with store.step():
        stages.module(stage.rule).run(
            *([] if chosen is None else [chosen]), **_below(root, paths), **rule.more(config, stage)
        )
    if done is not None:
        done.add(stage)
    ran(stage)


def freeze(config: Config, dataset: str, split: str, root: Path) -> None:
    out = root / cells.prompts(dataset, split)
    if not out.exists():
        with store.step():
            chosen = stages.of("prompts", config, dataset)
            stages.module("prompts").run(chosen, split, str(out), str(store.manifest_path(out)))


def convert(config: Config, model: str, manifest: Path) -> None:
    """The weights of a model that come from a package; in this process the hub's library fetches others as it loads them."""
    source = config.models[of_config.base(config, model)].source
    if "package" in source and not manifest.exists():
        stages.module("convert_model").run(source["package"], source["file"], str(manifest.parent))


def _below(root: Path, paths: Any) -> Any:
    if isinstance(paths, dict):
        return {name: _below(root, path) for name, path in paths.items()}
    return [_below(root, path) for path in paths] if isinstance(paths, list) else str(root / paths)


@functools.cache
def parameters(rule: str) -> dict[str, Any]:
    """{parameter of a stage's run: its type, without its help and without None}."""
    hints = get_type_hints(stages.module(rule).run, include_extras=True)
    return {name: stages.bare(kind)[0] for name, kind in hints.items()}


# Were what is there made again, would it have the settings that it was made with?


def otherwise(
    config: Config, targets: Collection[str], kept: Callable[[str, str], bool], pin: Callable[[Any], Any]
) -> dict[str, list[str]]:
    """{file: its settings that have changed, each with its values} of the files there that the targets need.

    kept: whether a file of a rule is one that nothing would make again. pin: orce.config.settings.pinned.
    """
    planned, changed = _needed(config, targets), {}
    made = {
        cells.prompts(*split): Stage("prompts", cells.Cell(split[0], "")) for split in graph.frozen(config, planned)
    }
    for file, stage in (made | {stage.files[0]: stage for stage in planned}).items():
        if Path(file).exists() and kept(file, stage.rule):
            made, now = store.facts(file.removesuffix("/manifest.json")).get("settings"), _sealed(config, stage, pin)
            if made is not None and digest(made) not in map(digest, now):
                changed[file] = min(([*_changes(made, settings)] for settings in now), key=len)
    return changed


def _needed(config: Config, targets: Collection[str]) -> list[Stage]:
    """The stages of files and rows, or of all tables of the run where a target is something else."""
    if not targets or not all(target.partition("/")[0] == store.RESULTS for target in targets):
        return graph.stages(config, config.paper_tables)
    known = {file: stage for stage in graph.stages(config, config.tables) for file in stage.files}
    asked: list[Stage] = []
    for target in targets:
        dataset, model, method, file, *_ = [*target.split("/")[1:], *[""] * 4]
        if target in known:
            asked.append(known[target])
        elif dataset in config.datasets and model in config.models and file in ("metrics.json", "extra.json"):
            asked.append(Stage("evaluate", cells.Cell(dataset, model), method))
        else:
            return graph.stages(config, config.paper_tables)
    return graph.reached(config, asked)


def _sealed(config: Config, stage: Stage, pin: Callable[[Any], Any]) -> list[dict[str, Any]]:
    """The settings that the seal of a stage's file may have: with its further options, and without."""
    chosen, more = plain(settings(config, stage) or {}), {}
    if stage.rule in graph.RULES:
        more = graph.RULES[stage.rule].more(config, stage)
    if stage.rule == "state":
        more = {"readout": config.evaluation.readout}
    return [pin(chosen | more), pin(chosen)]


def _changes(before: Any, now: Any, key: str = "") -> Iterator[str]:
    """Each key, dotted, whose value in one mapping is not that in the other."""
    if not isinstance(before, dict) or not isinstance(now, dict):
        if before != now:
            yield f"{key}: {short(before)}, now {short(now)}"
        return
    for name in sorted(before.keys() | now.keys()):
        yield from _changes(before.get(name), now.get(name), f"{key}.{name}".lstrip("."))
