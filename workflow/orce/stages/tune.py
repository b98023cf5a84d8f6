"""Put the choices of `tune` into a configuration file, to be given after the run's own: results/tuned.yaml."""

import yaml

from orce.artefacts import files, store
from orce.records import Choice
from orce.runtime.progress import say


def add_arguments(parser):
    parser.add_argument("--choices", nargs="+", required=True, help="choice.json of every cell")
    parser.add_argument("--out", required=True)


def run(args):
    choices = [files.typed(path, store.read_object(path), Choice) for path in args.choices]
    metric, trials = choices[0].metric, choices[0].trials
    means = {
        name: sum(score(choice, name) for choice in choices) / len(choices) for name in [one.trial for one in trials]
    }
    best = min(means, key=lambda name: means[name])
    point = next(one.dpo for one in trials if one.trial == best)
    with store.writing(args.out) as handle:
        handle.write(f"# Chosen on the validation splits of {len(choices)} cell(s): mean {metric} {means[best]:.4f}.\n")
        for path, choice in zip(args.choices, choices, strict=True):
            handle.write(
                f"# {path}: {choice.trial}, {metric} {score(choice, choice.trial):.4f} of {choice.n} questions\n"
            )
        handle.write(yaml.safe_dump({"dpo": point}))
    say(f"[tune] {best}; use it: snakemake --configfile YOURS {args.out}")


def score(choice: Choice, name: str) -> float:
    """A trial's metric in a cell; undefined counts as the worst value of that cell."""
    values = {one.trial: getattr(one, choice.metric) for one in choice.trials}
    return values[name] if values[name] is not None else max(value for value in values.values() if value is not None)
