"""The arms of the laboratory: what is trained in a cell, with which settings, and how it is tested.

explore: the grids, on the validation questions only. confirm: every arm at the setting chosen there, on the test.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evidence.lab.bench import TEST, VALIDATION, Bench, changed, scores
from orce.config.schema import Config, Split

REWARDS = ("sc", "nrd", "numeric", "sayself", "sc-surrogate")
SET_APART = ("sc", "nrd", "sayself")  # the rewards that `why` and `scale` compare
SCALED = ("sft", "sft_all", *SET_APART)
TRAINED = ("sft_all", "soft", "ordered")  # methods with a training of their own, tuned like the rewards


@dataclass(frozen=True)
class Grid:
    """What exploration tries: every reward at every (beta, learning rate), and the learning rates of SFT and of methods
    with a training of their own."""

    rewards: tuple[str, ...]
    alignment: tuple[tuple[float, float], ...]
    warm: tuple[float, ...]
    trained: dict[str, tuple[float, ...]]

    def trials(self) -> Iterator[tuple[str, dict]]:
        """(reward, keys of dpo) of every trial of the alignment."""
        for reward in self.rewards:
            for beta, rate in self.alignment:
                yield reward, {"beta": beta, "learning_rate": rate}


def rows_of(path: Path) -> list[dict]:
    """The results of a cell so far, one JSON object a line."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Book:
    """The results of a cell: one line for each arm and split, kept when the arm has been tested."""

    def __init__(self, bench: Bench):
        self.bench, self.path = bench, bench.folder / "results.jsonl"
        self.known = {(row["arm"], row["split"]) for row in rows_of(self.path)}

    def test(self, arm: str, split: str, weights: Callable[[], str | None], **facts) -> None:
        """Train an arm (weights() does it and returns the folder) and test it on a split, unless that is known."""
        if (arm, split) not in self.known:
            made = weights()
            self.write(arm, split, self.bench.state(arm, made, split), **facts)

    def write(self, arm: str, split: str, found: dict[str, np.ndarray], **facts) -> None:
        cell = {"model": self.bench.model, "seed": self.bench.seed, "arm": arm, "split": split}
        with open(self.path, "a") as handle:
            handle.write(json.dumps(cell | facts | {"n": len(found["correct"])} | scores(found)) + "\n")
        self.known.add((arm, split))


def label(name: str, over: dict) -> str:
    """The name of a trial: sc-beta1-learning_rate0.0003."""
    return "-".join([name, *(f"{key}{value:g}" for key, value in over.items())])


def explore(bench: Bench, grid: Grid) -> None:
    """Every trial of the grid, on the validation questions."""
    with bench.here():
        bench.answer()
        book = Book(bench)
        note(book, bench)
        for rate in grid.warm:
            over = {"learning_rate": rate}
            name = label("sft", over)
            book.test(name, VALIDATION, lambda n=name, o=over: bench.sft(n, **o), **over)
        for method, rates in grid.trained.items():
            for rate in rates:
                over = {"learning_rate": rate}
                name = label(method, over)
                trained = lambda n=name, m=method, o=over: bench.trained(n, m, **o)
                book.test(name, VALIDATION, trained, method=method, **over)
        start = bench.cell.weights(best_warm(book))
        drawn = bench.candidates(start)
        for reward, over in grid.trials():
            name = label(reward, over)
            aligned = lambda n=name, r=reward, o=over: bench.dpo(n, r, start, drawn, **o)
            book.test(name, VALIDATION, aligned, reward=reward, **over)


def best_warm(book: Book) -> str:
    """The warm start whose stated values have the lowest E-AURC on the validation questions."""
    rows = [row for row in rows_of(book.path) if row["arm"].startswith("sft-")]
    return min(rows, key=lambda row: row["stated_e_aurc"])["arm"]


def note(book: Book, bench: Bench) -> None:
    """Facts about the answers: accuracy, and the share of kappas strictly inside (0, 1)."""
    if ("facts", VALIDATION) in book.known:
        return
    kappas = bench.kappas(("sft", "rl"))
    facts = {"inside": float(((kappas > 0) & (kappas < 1)).mean()), "kappa": float(kappas.mean())}
    found = bench.agreement(VALIDATION)
    book.write("facts", VALIDATION, found, **facts)


# The confirmation: every arm at the setting that the validation questions chose


def choose(rows: list[dict], metric: str = "stated_e_aurc") -> dict[str, dict]:
    """{numbers: {arm: its setting, "other": the best reward but SC}}: the trials with the lowest mean validation E-AURC.

    rows: of the exploratory cells; a setting is chosen for all models that write numbers in one way, values or digits.
    """
    trials: dict[tuple[str, str], dict[str, list[float]]] = {}
    settings_of: dict[str, dict] = {}
    for row in rows:
        arm: str = row.get("reward") or row.get("method") or ("sft" if row["arm"].startswith("sft-") else "")
        if arm not in ("sft", *TRAINED, *REWARDS) or row["split"] != VALIDATION or "why" in row:
            continue
        trials.setdefault((numbers(row["model"]), arm), {}).setdefault(row["arm"], []).append(row[metric])
        settings_of[row["arm"]] = {key: row[key] for key in SETTING if key in row}
    found: dict[str, dict] = {}
    lowest: dict[str, dict[str, float]] = {}
    for (name, arm), values in trials.items():
        most = max(map(len, values.values()))
        whole = {trial: each for trial, each in values.items() if len(each) == most}  # tried in every cell
        best = min(whole, key=lambda trial: float(np.mean(whole[trial])))
        found.setdefault(name, {})[arm] = settings_of[best]
        lowest.setdefault(name, {})[arm] = float(np.mean(values[best]))
    for name, scored in lowest.items():
        rewards = [arm for arm in REWARDS if arm != "sc" and arm in scored]
        if rewards:
            found[name]["other"] = min(rewards, key=scored.__getitem__)
    return found


SETTING = ("beta", "learning_rate", "epochs", "anchor")


def group(model: str) -> str:
    """sums-values of sums-values-3."""
    return model.rpartition("-")[0]


def numbers(model: str) -> str:
    """values of sums-values-3: what a setting is chosen for."""
    return model.split("-")[1]


def confirm(bench: Bench, chosen: dict[str, dict], tested: tuple[str, ...], split: str = TEST) -> None:
    """SFT and the arms `tested` of a held-out cell, at the chosen settings, on the test questions."""
    mine = chosen[numbers(bench.model)]
    with bench.here():
        bench.answer()
        book = Book(bench)
        note(book, bench)
        if ("consistency", split) not in book.known:
            book.write("consistency", split, bench.agreement(split))
        start = bench.sft(**mine["sft"])
        drawn = bench.candidates(start)
        book.test("sft", split, lambda: start)
        book.test("sft", VALIDATION, lambda: start)  # for the isotonic map
        for arm in (mine[one] if one == "other" else one for one in tested):
            if arm in REWARDS:
                trained = lambda r=arm: bench.dpo(f"dpo-{r}", r, start, drawn, **mine[r])
            else:
                trained = lambda m=arm: bench.trained(m, m, **mine["sft" if m == "sft_long" else m])
            book.test(arm, split, trained, **({} if arm == "sft_long" else mine[arm]))


# Scale: how well kappa is known, and how many questions there are

SCALES = {
    "K2": (2, 500, 1000),
    "K4": (4, 500, 1000),
    "K16": (16, 500, 1000),
    "n125": (16, 125, 250),
    "n1500": (16, 1500, 3000),
}


def scaled(config: Config, name: str) -> Config:
    """The configuration with K, and the questions of SFT and RL, of SCALES."""
    samples, sft, rl = SCALES[name]
    made = changed(config, answers={"samples": samples})
    for data in made.datasets.values():
        if "validation" in data.splits:
            data.splits |= {"sft": Split(origin="train", size=sft), "rl": Split(origin="train", size=rl)}
            data.splits["test"] = Split(origin="test", size=100)  # not read here
    return made


def scale(bench: Bench, chosen: dict[str, dict], name: str) -> None:
    """SFT, SFT-all and three rewards at one point of SCALES, on the validation questions."""
    mine = chosen[numbers(bench.model)]
    with bench.here():
        bench.answer()
        book = Book(bench)
        start = bench.sft(**mine["sft"])
        drawn = bench.candidates(start)
        book.test("sft", VALIDATION, lambda: start, scale=name)
        book.test("sft_all", VALIDATION, lambda: bench.trained("sft_all", "sft_all", **mine["sft_all"]), scale=name)
        for reward in SET_APART:
            aligned = lambda r=reward: bench.dpo(f"dpo-{r}", r, start, drawn, **mine[r])
            book.test(reward, VALIDATION, aligned, scale=name, reward=reward)


# Why: one thing changed at a time, on the validation questions of the exploratory cells

WHY_BASE = {"beta": 1.0}
WARM_EPOCHS = (0, 1, 3)
CANDIDATES = (2, 32)
ANCHORS = (0.1, 1.0)


def why(bench: Bench, chosen: dict[str, dict]) -> None:
    """Warm starts of several r, M, rounds at equal steps, the reference set and an anchor, each with and without ORCE."""
    mine = chosen[numbers(bench.model)]
    base = WHY_BASE | {"learning_rate": mine["sc"]["learning_rate"]}
    with bench.here():
        bench.answer()
        book = Book(bench)
        start = bench.sft(**mine["sft"])
        drawn = bench.candidates(start, "why/")  # exploration's may be of another warm start
        book.test("sft", VALIDATION, lambda: start)

        def align(name: str, reward: str, start: str = start, drawn: str = drawn, **over) -> None:
            setting: dict = base | over
            trained = lambda: bench.dpo(name, reward, start, drawn, **setting)
            book.test(name, VALIDATION, trained, reward=reward, why=name, **setting)

        align("why-sc", "sc")
        align("why-mean-reference", "sc", reference="mean")
        for anchor in ANCHORS:
            align(f"why-anchor{anchor:g}", "sc", anchor=anchor)
        for count in CANDIDATES:
            more = bench.candidates(start, f"m{count}/", candidates=count)
            align(f"why-candidates{count}", "sc", drawn=more)
        third = bench.config.dpo.epochs / 3
        rounds(bench, book, start, drawn, base | {"epochs": third})
        for epochs in WARM_EPOCHS:
            name = f"warm{epochs:g}"
            book.test(name, VALIDATION, lambda n=name, e=epochs: warmed(bench, n, e, mine), why=name)
            other = bench.cell.weights(name)
            more = bench.candidates(other, f"{name}/")
            for reward in SET_APART:
                align(f"why-{name}-{reward}", reward, other, more)
        turned = bench.sft("reversed", target="reversed", learning_rate=mine["sft"]["learning_rate"])
        book.test("reversed", VALIDATION, lambda: turned, why="reversed")
        align("why-reversed-sc", "sc", turned, bench.candidates(turned, "reversed/"))


def warmed(bench: Bench, name: str, epochs: float, mine: dict) -> str:
    return bench.sft(name, epochs=epochs, learning_rate=mine["sft"]["learning_rate"])


def rounds(bench: Bench, book: Book, start: str, drawn: str, setting: dict) -> None:
    """Three rounds of a third of the epochs each, the same steps as one round of all."""
    current = start
    for number in (1, 2, 3):
        name, last = f"why-round{number}", current
        if number > 1:
            drawn = bench.candidates(last, f"round{number}/")
        where = {"tied_to": start} if number > 1 else {}
        train = lambda n=name, s=last, d=drawn, w=where: bench.dpo(n, "sc", s, d, **w, **setting)
        book.test(name, VALIDATION, train, reward="sc", why=name, **setting)
        current = bench.cell.weights(name)


def collected(folder: Path) -> list[dict]:
    """The results of all cells below a folder."""
    return [row for path in sorted(folder.glob("*/results.jsonl")) for row in rows_of(path)]
