"""Two ways of doing the same thing, timed in turn: A B A B ..., so that a machine's moods reach both alike."""

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from statistics import median


@dataclass
class Row:
    """One line of a comparison: seconds of both sides, one entry a repeat, and how many times as long `plain` takes.

    notes: what was checked or counted beside the time, by name.
    """

    name: str
    ours_wall: list[float]
    ours_cpu: list[float]
    plain_wall: list[float] = field(default_factory=list)
    plain_cpu: list[float] = field(default_factory=list)
    notes: dict = field(default_factory=dict)

    def ratio(self, clock: str) -> dict | None:
        """Ratio of medians plain/ours, with the least and the greatest ratio of one repeat; clock: "wall" or "cpu"."""
        ours, plain = getattr(self, f"ours_{clock}"), getattr(self, f"plain_{clock}")
        if not plain:
            return None
        each = [b / a for a, b in zip(ours, plain, strict=True)]
        return {"median": median(plain) / median(ours), "low": min(each), "high": max(each)}

    def record(self) -> dict:
        return asdict(self) | {"ratio_cpu": self.ratio("cpu"), "ratio_wall": self.ratio("wall")}


def compare(
    name: str,
    ours: Callable[[], object],
    plain: Callable[[], object],
    repeats: int,
    *,
    inner: int = 1,
    notes: dict | None = None,
    warm: bool = True,
) -> Row:
    """Time both sides `repeats` times in turn, after one run of each that does not count (`warm`: unless it was done).

    `inner` runs of ours make one repeat: what takes a millisecond cannot be timed once.
    """
    if warm:
        ours(), plain()
    row = Row(name, [], [], notes=notes or {})
    for _ in range(repeats):
        _add(row, "ours", ours, inner)
        _add(row, "plain", plain)
    return row


def alone(name: str, work: Callable[[], object], repeats: int) -> Row:
    """Time one side that has no counterpart."""
    row = Row(name, [], [])
    for _ in range(repeats):
        _add(row, "ours", work)
    return row


def _add(row: Row, side: str, work: Callable, times: int = 1) -> None:
    wall, cpu = time.perf_counter(), _cpu_seconds()
    for _ in range(times):
        work()
    getattr(row, f"{side}_cpu").append((_cpu_seconds() - cpu) / times)
    getattr(row, f"{side}_wall").append((time.perf_counter() - wall) / times)


def _cpu_seconds() -> float:
    """Seconds of this process, all its threads, and of the child processes that it has waited for."""
    spent = time.process_time()
    children = os.times()
    return spent + children.children_user + children.children_system
