"""Choose the trial of `tune` that is best on the validation split."""

from pathlib import Path

import numpy as np

from orce import metrics
from orce.artefacts import store
from orce.errors import BadInput
from orce.records import Choice, Trial
from orce.runtime.progress import say
from orce.stage_settings import Choose, plain

Settings = Choose


def add_arguments(parser):
    parser.add_argument("--confidences", nargs="+", required=True, help="of each trial, TRIAL.jsonl")
    parser.add_argument("--out", required=True)


def run(settings: Choose, args):
    found = [trial(Path(path), settings) for path in args.confidences]
    defined = [(value, one) for one in found if (value := getattr(one, settings.metric)) is not None]
    if not defined:
        raise BadInput(
            f"{args.confidences[0]}: {settings.metric} is undefined in every trial; use a larger validation split"
        )
    value, best = min(defined, key=lambda pair: pair[0])
    asked = {"metric": settings.metric, "readout": settings.readout}
    store.write_object(
        args.out, plain(Choice(trial=best.trial, dpo=best.dpo, n=best.n, trials=found, **asked)), settings
    )
    say(f"[tune] {args.out}: {best.trial}, {settings.metric} {value:.4f} of {best.n} questions")


def trial(path: Path, settings: Choose) -> Trial:
    """A trial's metrics on the validation split."""
    records = store.read(path, ("id", "correct", settings.readout))
    confidence = np.array([record[settings.readout] for record in records], dtype=float)
    correct = np.array([record["correct"] for record in records], dtype=bool)
    values = {key: metrics.METRICS[key](confidence, correct) for key in ("e_aurc", "aurc", "ece", "brier")}
    name = path.name.removesuffix(".jsonl")
    retried = sum(bool(record["retried"]) for record in records)
    return Trial(trial=name, dpo=plain(settings.trials[name]), n=len(records), retried=retried, **values)
