"""How long a run takes on several GPUs: its jobs, in an order that their inputs allow, on whichever GPUs are free."""

import heapq
from collections.abc import Callable

from orce.config import graph
from orce.config.graph import TRAININGS, Stage
from orce.config.schema import Config


def gpus(config: Config, rule: str) -> int:
    """GPUs (or, on a CPU, places) of one job of a rule."""
    return max(1, config.training.gpus if rule in TRAININGS else config.gpus)


def before(config: Config, stage: Stage) -> set[Stage]:
    """The stages with a model that must end before a stage starts: those it reads, or that what it reads was made from."""
    reads = [one for made in graph.reads(config, stage).values() for one in made]
    found = [{one} if graph.model(config, one) else before(config, one) for one in reads]
    return set().union(*found)


def makespan(config: Config, hours: dict[Stage, float], devices: int) -> float:
    """Hours until the last job has ended, on `devices` GPUs; hours: of one job of each stage, by the clock.

    The job with the longest chain of jobs after it goes first, as the rules' priorities come close to. A job that needs
    more GPUs than there are takes all of them.
    """
    needs = {stage: [one for one in before(config, stage) if one in hours] for stage in hours}
    rank = _after(needs, hours)
    left = {stage: graph.shards(config, stage.rule) for stage in hours}
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
