"""One cell of the decisive experiment, with a seed, through the workflow's own steps: information x training on equal answers."""

import contextlib
import json
import os
import time
from pathlib import Path

import numpy as np

from evidence.decisive import told
from evidence.lab.arms import label
from evidence.lab.bench import Bench, changed
from evidence.runs import ROOT, RUNS
from orce import methods
from orce.answers import probing
from orce.answers.places import PLACES
from orce.answers.surrogate import read_surrogate, write_surrogate
from orce.artefacts import files, store
from orce.config import cells, settings
from orce.config.load import read_config
from orce.evaluation.metrics import METRICS
from orce.methods.combinations import logistic
from orce.stages import probe as probe_stage

HERE = Path(os.environ.get("ORCE_DECISIVE", RUNS / "decisive"))
MODELS = {
    "wikidata": "smollm2",
    "wikidata-few": "smollm2",
    "wikidata-shift": "smollm2",
    "exams": "gpt35",
    "cruxeval": "codellama",
}
CONFIG = ["config.yaml", "config/demo.yaml", "config/decisive.yaml"]
EVALUATED = ("validation", "test")
TRAINING = ("sft", "rl")
TRAINED = ("sft_all", "ordered", "sft_probe", "orce", "soft")
LONG = "sft_all_long"  # SFT-all for three times the epochs: the steps of three times the labels
EXPLORED = ("sft", LONG)  # ORCE's warm start, read to tell its reward from its fewer labels, and LONG; never "best"
TOLD = {"told": "sft_all", "told_soft": "soft"}  # arms whose prompt has the answer's probability too
TUNED = ("sft_all", "soft", "ordered")  # the arms that --rates tries rates for, all with the same ones


class Cell(Bench):
    """A bench whose answers are sampled, or given, and whose folder has the measured and probed rows too.

    rates: learning rates that each arm of TUNED is trained at; without any the configuration's alone.
    """

    rates: tuple[float, ...] = ()

    @classmethod
    def of(cls, dataset: str, seed: int, extra: tuple[str, ...] = (), rates: tuple[float, ...] = ()) -> "Cell":
        with contextlib.chdir(ROOT):
            config = changed(read_config([*CONFIG, *extra]))
        for data in config.datasets.values():
            if data.task.endswith(".py"):
                data.task = str(ROOT / data.task)
            if "path" in data.source:
                data.source["path"] = str(ROOT / data.source["path"])
        for model in config.models.values():
            if model.answers is not None:
                model.answers.path = str(ROOT / model.answers.path)
        cell = cls(config, MODELS[dataset], seed, HERE / "cells" / f"{dataset}-{seed}", HERE / "models")
        cell.dataset, cell.rates = dataset, rates
        return cell

    @property
    def own(self) -> bool:
        """Whether the answer LLM's weights are at hand: its likelihoods and its own states."""
        return bool(self.config.models[self.model].source)

    def prompts_of(self, *splits: str) -> list[str]:
        return [f"{split}={cells.prompts(self.dataset, split)}" for split in splits]

    def answer(self) -> None:
        """The model that judges, the frozen questions, the samples and kappas."""
        model, self.model = self.model, "smollm2"
        self._model()
        self.model = model
        for split in settings.splits(self.config, *self.cell):
            path = cells.prompts(self.dataset, split)
            options = settings.prompts(self.config, self.dataset)
            self.step("prompts", options, path, split=split, manifest=cells.manifest(path))
        frozen, cell = self.prompts_of(*settings.splits(self.config, *self.cell)), self.cell
        if self.own:
            self.step("sample", settings.sample(self.config, *cell), cell.samples, prompts=frozen)
        else:
            options, manifest = settings.import_answers(self.config, *cell), cells.manifest(cell.samples)
            self.step("import-answers", options, cell.samples, prompts=frozen, manifest=manifest)
        self.step("surrogate", None, cell.surrogate, samples=cell.samples, seed=self.seed)

    def measured(self) -> None:
        """Free rows: agreement and semantic entropy of the samples, and the likelihoods where there are weights."""
        task, cell = self.config.datasets[self.dataset].task, self.cell
        for split in EVALUATED:
            samples = cell.samples if split == "test" else self.as_test(split)
            read = {"prompts": cells.prompts(self.dataset, split), "samples": samples, "task": task}
            for method in ("agreement", "semantic_entropy"):
                self.step("derive", None, str(self.stated(method, split)), method=method, **read)
            if self.own:
                path = f"{cell.folder}/likelihoods-{split}.jsonl"
                scored = {key: read[key] for key in ("prompts", "samples")}
                self.step("likelihoods", settings.likelihoods(self.config, *cell), path, **scored)
                for method in ("sequence_probability", "likelihood"):
                    out = str(self.stated(method, split))
                    self.step("derive", None, out, method=method, likelihoods=path, **read)

    def as_test(self, split: str) -> str:
        """A file of a split's samples under the name of the test split, which alone the steps of free rows read."""
        path = f"{self.cell.folder}/samples-{split}.jsonl"
        rows = store.read(self.cell.samples, ("id", "split"))
        store.write(path, [row | {"split": "test"} for row in rows if row["split"] == split], {"split": split})
        return path

    def probed(self) -> None:
        """Linear probes: on the judge's prompt, and on the answer's own states."""
        cell = self.cell
        for of, method in ({"judge": "probe_judge"} | ({"answers": "probe"} if self.own else {})).items():
            options = settings.states(self.config, *cell, of)
            read = {"samples": cell.samples, "surrogate": cell.surrogate}
            self.step("states", options, cell.states(of), prompts=self.prompts_of(*TRAINING, "test"), **read)
            options, fit_on = settings.probe(self.config, *cell, method), self.prompts_of(*TRAINING)
            fit = {"fit_on": fit_on, "fit_states": cell.states(of), "states": cell.states(of), "fit": cell.fit(method)}
            out = str(self.stated(method, "test"))
            self.step("probe", options, out, prompts=cells.prompts(self.dataset, "test"), **fit, **read)

    def held_out(self, method: str) -> dict[tuple[str, str], float]:
        """{(split, id): what a probe says of a training question}, fitted without that question's fold."""
        cell, parameters = self.cell, files.read_json(self.cell.fit(method))["parameters"]
        mine = [row for row in read_surrogate(cell.surrogate) if row.split in TRAINING]
        names, (place,) = [row.key for row in mine], methods.load(method).READS
        x = probe_stage.features([cell.states(PLACES[place])], (place,), names)[place]
        layer = (x[:, parameters["layer"]] - np.array(parameters["mean"])) / np.array(parameters["scale"])
        labels = probe_stage.labels(cell.surrogate, names)[parameters["target"]]
        shares, fold = np.array(labels, float), np.arange(len(mine)) % probing.FOLDS
        found = np.empty(len(mine))
        for part in range(probing.FOLDS):
            model = probing.regression(layer[fold != part], shares[fold != part], parameters["C"])
            found[fold == part] = model.predict_proba(layer[fold == part])[:, 1]
        return dict(zip(names, found.tolist(), strict=True))

    def probes_labels(self) -> str:
        """A surrogate file whose kappas are the probe's on the judge's prompt, each from the folds without its question."""
        path = f"{self.cell.folder}/probes-labels.csv"
        rows, held_out = read_surrogate(self.cell.surrogate), self.held_out("probe_judge")
        for row in rows:
            row.kappa = held_out.get(row.key, row.kappa)
        with store.writing(path, {"of": "probe_judge"}) as handle:
            write_surrogate(handle, rows)
        return path

    def weights(self, arm: str) -> str:
        """The folder of a trained arm."""
        if arm == "sft":
            return self.sft()
        if arm == LONG:
            return self.tuned(arm, "sft_all", epochs=9)
        if arm == "orce":
            start = self.sft()
            return self.dpo("orce", "sc", start, self.candidates(start))
        if arm != "sft_probe":
            return self.tuned(arm) if self.rates else self.trained(arm, arm)
        if self.rates:
            self.tuned("sft_all")
        options, labels = settings.train(self.config, *self.cell, "sft_all"), self.probes_labels()
        self.step("train", options, self.cell.weights(arm), surrogate=labels, prompts=self.prompts_of(*TRAINING))
        return self.cell.weights(arm)

    def tuned(self, arm: str, method: str = "", **over) -> str:
        """The folder of an arm at the rate with the lowest AURC on validation, which the configuration then has."""
        scored = {}
        for rate in self.rates:
            name = label(arm, {"learning_rate": rate})
            found = self.state(name, self.trained(name, method or arm, learning_rate=rate, **over), "validation")
            scored[rate] = METRICS["aurc"](found["mean"], found["correct"]), self.cell.weights(name)
        rate, known = min(scored, key=scored.__getitem__), self.config.methods[method or arm]
        assert isinstance(known, dict), f"{arm} is a method of the package"
        known["learning_rate"] = rate
        files.write_json(Path(self.cell.folder, f"rates-{arm}.json"), {str(key): of[0] for key, of in scored.items()})
        return scored[rate][1]

    def told(self, arms: list[str]) -> None:
        """Judges that are told the probability of the answer's tokens, and the probe beside it."""
        trained = told.of_training(self)
        self.once(str(self.stated(told.MIX, "test")), lambda: told.probe_and_probability(self, trained))
        cell = told.cell(self, trained)
        for arm in arms:
            for split in EVALUATED:
                cell.state(arm, cell.weights(arm), split)

    def stack(self, name: str, rows: list[str]) -> None:
        """A logistic stack of rows, fitted on the validation questions."""

        def read(split):
            found = [store.read(str(self.stated(row, split)), ("correct",)) for row in rows]
            found = [list(one) for one in found]
            return np.array([[_reading(one) for one in line] for line in zip(*found, strict=True)]), list(found[0])

        x, first = read("validation")
        fitted = logistic.fit(x, [one["correct"] for one in first])
        x, first = read("test")
        values = logistic.apply(fitted, x)
        lines = [
            {"id": one["id"], "correct": one["correct"], "confidence": float(v)}
            for one, v in zip(first, values, strict=True)
        ]
        files.write_json(self.stated(name, "test").with_suffix(".json"), lines)

    def run(self, arms: tuple[str, ...]) -> dict:
        """Everything; returns the seconds of each step that was run now."""
        with self.here():
            self.answer()
            self.measured()
            self.probed()
            base = "sequence_probability" if self.own else "agreement"
            for arm in (one for one in arms if one not in TOLD):
                for split in EVALUATED:
                    self.state(arm, self.weights(arm), split)
                self.stack(f"stack-{arm}", [base, arm])
            if reading := [TOLD[arm] for arm in arms if arm in TOLD]:
                self.told(reading)
            times = Path("seconds.jsonl")
            with open(times, "a") as handle:
                handle.write(json.dumps({"at": round(time.time()), "seconds": self.seconds}) + "\n")
        return self.seconds


def _reading(row: dict) -> float:
    value = row.get("mean", row.get("confidence"))
    return 0.5 if value is None else value
