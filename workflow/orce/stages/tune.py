"""Put the choices of `tune` into a configuration file, to be given after the run's own: results/tuned.yaml."""

import yaml

from orce.artefacts import store
from orce.runtime.progress import say


def add_arguments(parser):
    parser.add_argument("--choices", nargs="+", required=True, help="choice.json of every cell")
    parser.add_argument("--out", required=True)


def run(args):
    choices = [store.read_object(path) for path in args.choices]
    metric = choices[0]["metric"]
    means = {
        name: sum(score(choice, name) for choice in choices) / len(choices)
        for name in [one["trial"] for one in choices[0]["trials"]]
    }
    best = min(means, key=lambda name: means[name])
    point = next(one["dpo"] for one in choices[0]["trials"] if one["trial"] == best)
    with store.writing(args.out) as handle:
        handle.write(f"# Chosen on the validation splits of {len(choices)} cell(s): mean {metric} {means[best]:.4f}.\n")
        for path, choice in zip(args.choices, choices, strict=True):
            handle.write(
                f"# {path}: {choice['trial']}, {metric} {score(choice, choice['trial']):.4f} of {choice['n']} questions\n"
            )
        handle.write(yaml.safe_dump({"dpo": point}))
    say(f"[tune] {best}; use it: snakemake --configfile YOURS {args.out}")


def score(choice: dict, name: str) -> float:
    """A trial's metric in a cell; undefined counts as the worst value of that cell."""
    values = {one["trial"]: one[choice["metric"]] for one in choice["trials"]}
    return values[name] if values[name] is not None else max(value for value in values.values() if value is not None)
