"""How long a run takes on several GPUs: its jobs, in an order that their inputs allow, on whichever GPUs are free."""

import heapq
from collections.abc import Callable

from orce import methods
from orce.config import matrix, settings
from orce.config.cells import aligned, round_folder, round_start
from orce.config.matrix import Stage
from orce.config.schema import Config

SHARDS = {  # the configuration's section that has the number of shards
    "sample": "answers",
    "elicit": "answers",
    "candidates": "confidence",
    "state": "confidence",
    "likelihoods": "confidence",
    "states": "confidence",
}
TRAININGS = ("sft", "train", "dpo")


def parts(config: Config, rule: str) -> int:
    """Jobs that a stage of a rule is split into."""
    return getattr(config, SHARDS[rule]).shards if rule in SHARDS else 1


def gpus(config: Config, rule: str) -> int:
    """GPUs (or, on a CPU, places) of one job of a rule."""
    return max(1, config.training.gpus if rule in TRAININGS else config.gpus)


def before(config: Config, stage: Stage) -> list[Stage]:
    """The stages with a model whose outputs a stage reads, as the rules chain them."""
    cell, name = stage.cell, stage.name
    if stage.rule == "grade":
        return matrix.answers(config, cell)[:-1]
    if stage.rule in ("sft", "train", "likelihoods", "states"):
        return matrix.answers(config, cell)[-1:]
    if stage.rule == "candidates":
        if not name:
            return [Stage("sft", cell, "sft")]
        number, reward, _ = name.removeprefix("round").split("/")
        return [Stage("dpo", cell, round_start(reward, int(number)))]
    if stage.rule == "dpo":
        reward, number = aligned(name)
        return [Stage("candidates", cell, round_folder(reward, number or config.dpo.rounds))]
    if stage.rule == "state":
        found = settings.weights(config, *cell, name)
        rule = "" if found is None else _rule_of(config, found[1])
        return [matrix.answers(config, cell)[-1], *([Stage(rule, *found)] if found else [])]
    return []


def _rule_of(config: Config, folder: str) -> str:
    if folder in methods.of(config).trained():
        return "train"
    return "sft" if folder == "sft" else "dpo"


def makespan(config: Config, hours: dict[Stage, float], devices: int) -> float:
    """Hours until the last job has ended, on `devices` GPUs; hours: of one job of each stage, by the clock.

    The job with the longest chain of jobs after it goes first, as the rules' priorities come close to. A job that needs
    more GPUs than there are takes all of them.
    """
    needs = {stage: [one for one in before(config, stage) if one in hours] for stage in hours}
    rank = _after(needs, hours)
    left = {stage: parts(config, stage.rule) for stage in hours}
    free, now = devices, 0.0
    running: list[tuple[float, int, Stage]] = []
    waiting = sorted((stage for stage in hours for _ in range(left[stage])), key=lambda stage: -rank(stage))
    while waiting or running:
        for stage in list(waiting):
            wanted = min(devices, gpus(config, stage.rule))
            if wanted <= free and not any(left[one] for one in needs[stage]):
                waiting.remove(stage)
                free -= wanted
                heapq.heappush(running, (now + hours[stage], wanted, stage))
        now, wanted, done = heapq.heappop(running)
        free, left[done] = free + wanted, left[done] - 1
    return now


def _after(needs: dict[Stage, list[Stage]], hours: dict[Stage, float]) -> Callable[[Stage], float]:
    """A function of a stage: hours of the longest chain that starts with it."""
    followers: dict[Stage, list[Stage]] = {stage: [] for stage in needs}
    for stage, earlier in needs.items():
        for one in earlier:
            followers[one].append(stage)
    known: dict[Stage, float] = {}

    def chain(stage: Stage) -> float:
        if stage not in known:
            known[stage] = hours[stage] + max(map(chain, followers[stage]), default=0.0)
        return known[stage]

    return chain
