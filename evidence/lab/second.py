"""The laboratory's second run: answer models that nobody has seen, with the free signals and probes as arms.

``python -m evidence.lab.second explore | run | retune | release | report``; the plan is docs/evidence/laboratory-2-plan.md. What is
done stays, and several of these programs may run side by side.
"""

import argparse
import contextlib
import dataclasses
import gzip
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from evidence.decisive import report
from evidence.decisive.run import TRAINING, Cell
from evidence.lab import __main__ as lab
from evidence.lab import arms, second_page
from evidence.lab.bench import TEST, VALIDATION, Bench, read
from evidence.lab.experiments import ORDER, SCRATCH
from evidence.lab.second_page import ITEMS
from orce.answers.surrogate import read_surrogate
from orce.artefacts import files, store
from orce.errors import BadInput, explain
from orce.evaluation.metrics import METRICS
from orce.runtime.progress import say

SEED, NUMBERS = 201, range(3, 41)
UNRELIABLE = ("sums-values", "sums-digits")  # not one of four had a reliable kappa
RATES = (3e-4, 1e-3, 3e-3)
TRIED = arms.Grid((), (), warm=(3e-3,), trained=dict.fromkeys(arms.TRAINED, RATES))
EXPLORE = dataclasses.replace(SCRATCH, name="lab-2", chosen=SCRATCH.chosen.with_name("chosen-2.json"), grid=TRIED)
HELD_OUT = [f"{group}-{number}" for number in NUMBERS for group in ORDER if number < 5 or group not in UNRELIABLE]
JUDGES = ("sft_all", "soft", "ordered", "orce")  # of which validation chooses `best`
TRAINED = (*JUDGES, "other")  # beside the warm start, sft
FREE = ("sequence_probability", "likelihood", "agreement", "semantic_entropy")
PROBED = ("probe_judge", "probe")
RELIABLE = 0.6  # of kappa, by its two halves


class Second(Cell):
    """A cell of the laboratory whose folder has the free rows and the probes too."""

    @property
    def own(self) -> bool:
        return True

    def answer(self) -> None:
        Bench.answer(self)

    def work(self, chosen: dict[str, dict]) -> None:
        """Every arm on the test questions, and the trained ones on the validation questions too."""
        mine = chosen[arms.numbers(self.model)]
        with self.here():
            self.answer()
            if self.reliability() < RELIABLE:
                return
            self.measured()
            self.probed()
            start = self.sft(**mine["sft"])
            drawn = self.candidates(start)
            weights = {"sft": start}
            for arm in TRAINED:
                name = {"orce": "sc", "other": mine["other"]}.get(arm, arm)
                if name in arms.REWARDS:
                    weights[arm] = self.dpo(f"dpo-{name}", name, start, drawn, **mine[name])
                else:
                    weights[arm] = self.trained(name, name, **mine[name])
            for arm, folder in weights.items():
                for split in (VALIDATION, TEST):
                    self.state(arm, folder, split)
            files.write_json(Path("done.json"), self.seconds)

    def retune(self, chosen: dict[str, dict]) -> None:
        """SFT-all at the rates that exploration did not choose; validation questions of this cell then choose among all."""
        mine = chosen[arms.numbers(self.model)]["sft_all"]["learning_rate"]
        with self.here():
            if not Path("done.json").exists():
                return
            names = {"sft_all": mine} | {arms.label("sft_all", {"learning_rate": r}): r for r in RATES if r != mine}
            for name, rate in names.items():
                if name != "sft_all":
                    self.state(name, self.trained(name, "sft_all", learning_rate=rate), VALIDATION)
            best = min(names, key=self.validated)
            self.state(best, self.cell.weights(best), TEST)
            files.write_json(Path("retuned.json"), {"arm": best, "learning_rate": names[best]})

    def reliability(self) -> float:
        """Correlation of kappa by the first half of the samples with kappa by the second, on the training questions."""
        rows = [row["correct"] for row in store.read(self.cell.samples, ("split",)) if row["split"] in TRAINING]
        right = np.array(rows, dtype=float)
        first, second = np.array_split(right, 2, axis=1)
        return float(np.corrcoef(first.mean(1), second.mean(1))[0, 1])

    def items(self) -> Iterator[dict]:
        """A line for each test question, as evidence/items has them; `best` is chosen on the validation questions."""
        samples = {row["id"]: row for row in store.read(self.cell.samples, ("id", "split")) if row["split"] == TEST}
        said = {arm: self.read(arm, "confidence") for arm in (*FREE, *PROBED)}
        trained = ("sft", *TRAINED)
        said |= {arm: self.read(arm, "mean") for arm in trained}
        said |= {f"{arm}:stated": self.read(arm, "stated") for arm in trained}
        if Path("retuned.json").exists():
            best = files.read_json(Path("retuned.json"))["arm"]
            said |= {"sft_all_retuned": self.read(best, "mean"), "sft_all_retuned:stated": self.read(best, "stated")}
        said["best"] = said[min(JUDGES, key=self.validated)]
        for name, row in samples.items():
            confidences = {arm: round(values[name], 4) for arm, values in said.items()}
            greedy = row["greedy"]
            line = {"id": name, "group": self.model, "answer": greedy["answer"], "correct": bool(greedy["correct"])}
            yield line | {"kappa": float(np.mean(row["correct"])), "confidences": confidences}

    def read(self, arm: str, key: str) -> dict[str, float]:
        """{id: confidence}; an unread statement is 0.5."""
        rows = store.read(str(self.stated(arm, TEST)), ("id",))
        return {row["id"]: 0.5 if row[key] is None else float(row[key]) for row in rows}

    def validated(self, arm: str) -> float:
        """E-AURC of a trained arm's mean on the validation questions."""
        stated = read(self.stated(arm, VALIDATION))
        value = METRICS["e_aurc"](stated["mean"], stated["correct"])
        assert value is not None, "every mean can be ranked"
        return value


def cell(model: str) -> Second:
    folder = EXPLORE.folder / "run" / f"{model}-{SEED}"
    return Second(EXPLORE.configuration(model), model, SEED, folder, EXPLORE.folder / "models")


def settings() -> dict[str, dict]:
    """The first run's choices, with the rates that this run's exploration chose of three."""
    chosen = EXPLORE.settings()
    return {name: known | chosen[name] | {"other": known["other"]} for name, known in SCRATCH.settings().items()}


def release() -> None:
    """The items of every finished cell, the facts of all that were begun, and the page."""
    facts = {}
    ITEMS.mkdir(parents=True, exist_ok=True)
    for model in HELD_OUT:
        one = cell(model)
        if not (one.folder / one.cell.surrogate).exists():
            continue
        with contextlib.chdir(one.folder):
            kappas = np.array([row.kappa for row in read_surrogate(one.cell.surrogate)])
            done = Path("done.json").exists()
            inside = float(((kappas > 0) & (kappas < 1)).mean())
            facts[model] = {"reliability": round(one.reliability(), 4), "inside": round(inside, 4), "counts": done}
            if done:
                lines = "".join(json.dumps(line) + "\n" for line in one.items())
                (ITEMS / f"{model}.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    files.write_json(ITEMS / "cells.json", facts)
    (ITEMS / report.SUMS).write_text(report.sums(ITEMS), encoding="ascii")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m evidence.lab.second", description=__doc__)
    parser.add_argument("command", choices=["explore", "run", "retune", "release", "report"])
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no step after that; exit code 75")
    parser.add_argument("--models", nargs="+", default=HELD_OUT)
    options = parser.parse_args(argv)
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    until = time.monotonic() + 60 * options.minutes
    try:
        if options.command == "explore":
            benches = (EXPLORE.bench("explore", model, seed) for model, seed in EXPLORE.explored)
            code = lab.work(benches, lambda one: arms.explore(one, EXPLORE.grid), until)
            if code == 0:
                files.write_json(EXPLORE.chosen, arms.choose(arms.collected(EXPLORE.folder / "explore")))
            return code
        if options.command == "run":
            return lab.work(map(cell, options.models), lambda one: one.work(settings()), until)
        if options.command == "retune":
            return lab.work(map(cell, options.models), lambda one: one.retune(settings()), until)
        if options.command == "release":
            release()
        say(str(second_page.write()))
        return 0
    except (BadInput, OSError) as error:
        print(f"evidence.lab.second {options.command}: {explain(error)}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
