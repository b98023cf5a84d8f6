"""The generated parts of docs/evidence.md, as Markdown. A cell that should be there and is not is named below its table."""

from collections.abc import Iterable, Sequence
from statistics import mean, stdev

from evidence import guarantee, numbers
from evidence.cells import MEAN, STATED, Key, Results
from evidence.differences import Comparison, Difference, Differences
from evidence.guarantee import DELTAS, RISKS
from evidence.runs import BASE, VARIANT_METHODS
from orce.config import layout
from orce.methods import Registry

TITLES = {
    "ece": "ECE", "spearman": "Spearman", "aurc": "AURC", "e_aurc": "E-AURC", "auroc": "AUROC", "accuracy": "accuracy",
}  # fmt: skip
COMPARED = (("orce", "sft"), ("sft", "vanilla"), ("orce", "vanilla"), ("orce", "conftuner"))
MAIN, ABLATION = layout.KINDS["main"], layout.KINDS["ablation"]
LABELS = {method: Registry().label(method) for method in (*MAIN, *ABLATION)}


def main(results: Results) -> str:
    """All methods: mean and standard deviation over the seeds, and how many confidences could not be read."""
    names = ("ece", "spearman", "aurc", "e_aurc", "auroc", "accuracy")
    rows = []
    for dataset, method in _cells(results, MAIN):
        found = results.over_seeds(BASE, dataset, method)
        unread = sum(cell.unread["confidence"] for cell in found.values()) if found else "missing"
        rows.append([dataset, LABELS[method], *_over_seeds(results, BASE, dataset, method, names), str(unread)])
    return _table(["dataset", "method", *(TITLES[name] for name in names), "unread"], rows) + _missing(
        results, lambda key: key.variant == BASE and key.method in MAIN
    )


def rewards(results: Results) -> str:
    """The five rewards: mean and standard deviation over the seeds."""
    names = ("spearman", "aurc", "e_aurc", "auroc", "ece")
    aligned = [method for method in ABLATION if method.startswith("orce")]
    rows = [
        [dataset, LABELS[method], *_over_seeds(results, BASE, dataset, method, names)]
        for dataset, method in _cells(results, aligned)
    ]
    return _table(["dataset", "reward", *(TITLES[name] for name in names)], rows) + _missing(
        results, lambda key: key.variant == BASE and key.method in aligned
    )


def readout(results: Results) -> str:
    """SFT and ORCE: the stated value beside the mean of the distribution."""
    names = ("ece", "spearman", "aurc", "e_aurc", "auroc")
    rows = [
        [dataset, LABELS[method], reading, *_over_seeds(results, BASE, dataset, method, names, reading)]
        for dataset, method in _cells(results, VARIANT_METHODS)
        for reading in (STATED, MEAN)
    ]
    return _table(["dataset", "method", "readout", *(TITLES[name] for name in names)], rows) + _missing(
        results, lambda key: key.variant == BASE and key.method in VARIANT_METHODS
    )


def difference(results: Results, differences: Differences) -> str:
    """Paired differences between methods: pooled with its interval, then seed by seed."""
    rows = []
    for dataset in _datasets(results):
        for one, other in COMPARED:
            found = differences(Comparison(dataset, BASE, one, BASE, other))
            texts = [_difference(found.get(name), len(results.seeds)) for name in ("spearman", "aurc", "e_aurc")]
            rows.append([dataset, f"{LABELS[one]} - {LABELS[other]}", *texts])
    compared = {method for pair in COMPARED for method in pair}
    return _table(["dataset", "difference", "Spearman", "AURC", "E-AURC"], rows) + _missing(
        results, lambda key: key.variant == BASE and key.method in compared
    )


def variants(results: Results, differences: Differences) -> str:
    """Each variant's SFT and ORCE beside base's, and two differences in AURC: to its own SFT, and to base's ORCE.

    The differences are of what is stated.
    """
    names = list(dict.fromkeys(key.variant for key in results.expected if key.variant != BASE))
    datasets = list(dict.fromkeys(key.dataset for key in results.expected if key.variant != BASE))
    shown = ("spearman", STATED), ("aurc", STATED), ("aurc", MEAN)
    rows = []
    for dataset in datasets:
        for variant in (BASE, *names):
            texts = [
                text
                for name, reading in shown
                for method in VARIANT_METHODS
                for text in _over_seeds(results, variant, dataset, method, (name,), reading)
            ]
            within = differences(Comparison(dataset, variant, "orce", variant, "sft")).get("aurc")
            across = differences(Comparison(dataset, variant, "orce", BASE, "orce")).get("aurc")
            texts.append(_difference(within, len(results.seeds)))
            texts.append("" if variant == BASE else _difference(across, len(results.seeds)))
            rows.append([dataset, variant, *texts])
    head = [
        f"{TITLES[name]}{' of the mean' if reading == MEAN else ''}, {LABELS[method]}"
        for name, reading in shown
        for method in VARIANT_METHODS
    ]
    compared = [f"AURC, {LABELS['orce']} - {LABELS['sft']}", f"AURC, {LABELS['orce']} - base's"]
    return _table(["dataset", "variant", *head, *compared], rows) + _missing(
        results,
        lambda key: key.method in VARIANT_METHODS and key.dataset in datasets,
    )


def objective(found: dict[tuple[str, int], list[tuple]], seeds: int) -> str:
    """Spearman correlation with kappa on the RL pairs, by the rounds of alignment before it (`objective.by_round`)."""
    rows = [
        [
            dataset,
            str(number) if number else "0 (the warm start)",
            *(spread(side, seeds) for side in zip(*each, strict=True)),
        ]
        for (dataset, number), each in found.items()
    ]
    return _table(["dataset", "rounds", "stated", "mean of the distribution"], rows or [["missing"] * 4])


def bound(results: Results) -> str:
    """The bound on the error rate of kept answers, on random halves of the questions of all seeds."""
    rows = []
    for dataset, method in _cells(results, VARIANT_METHODS):
        for reading in (STATED, MEAN):
            items = guarantee.pooled(results.over_seeds(BASE, dataset, method), reading)
            for delta in DELTAS:
                texts = [
                    _kept(guarantee.on_halves(*items, risk, delta)) if len(items[0]) else "missing" for risk in RISKS
                ]
                rows.append([dataset, LABELS[method], reading, str(len(items[0])), f"{1 - delta:g}", *texts])
    head = ["dataset", "method", "readout", "items", "promised with", *(f"at most {risk:g}" for risk in RISKS)]
    return _table(head, rows)


def _kept(found: guarantee.Kept) -> str:
    return f"{found.under} (some kept: {found.answered}, coverage {found.coverage:.2f})"


def machine(records: dict[tuple[str, int], dict | None]) -> str:
    """What the runs ran on, and the minutes that each took; `records`: machine.json by (variant, seed), None if missing."""
    there = [record for record in records.values() if record is not None]
    lines = [f"- {name}: {'; '.join(values) or 'missing'}" for name, values in _facts(there).items()]
    names, seeds = (list(dict.fromkeys(keys)) for keys in zip(*records, strict=True))
    rows = [[variant, *(_minutes(records.get((variant, seed))) for seed in seeds)] for variant in names]
    hours = sum(record.get("seconds", 0) for record in there) / 3600
    table = _table(["minutes", *(f"seed {seed}" for seed in seeds)], rows)
    return "\n".join(lines) + f"\n\n{table}\nTogether {hours:.1f} hours.\n"


def _facts(records: list[dict]) -> dict[str, list[str]]:
    """What is the same on a whole machine, and each value of what is not."""
    packages = [{"Python": record["python"]} | record["packages"] for record in records]
    commits = [attempt["commit"] or "unknown" for record in records for attempt in record["attempts"]]
    facts = {
        "processor": [f"{record['cpu']}, {record['cores']} cores" for record in records],
        "packages": [", ".join(f"{name} {version}" for name, version in each.items()) for each in packages],
        "commit": commits,
    }
    return {name: list(dict.fromkeys(values)) for name, values in facts.items()}


def _minutes(record: dict | None) -> str:
    if record is None:
        return "missing"
    ended = record["attempts"][-1]["exit"] == 0
    return f"{record.get('seconds', 0) / 60:.0f}" + ("" if ended else " (not finished)")


def digests(results: Results) -> list[tuple[str, int, str]]:
    """(of what, how many cells, SHA-256) of all cells and of each seed's."""
    sums = {key: cell.sha256 for key, cell in results.cells.items()}
    found = [("all", sums)] + [(f"seed {n}", {k: v for k, v in sums.items() if k.seed == n}) for n in results.seeds]
    return [(name, len(part), numbers.digest({_path(k): v for k, v in part.items()})) for name, part in found]


def _path(key: Key) -> str:
    return f"{key.variant}-{key.seed}/{key.dataset}/{key.method}"


def digest(results: Results) -> str:
    rows = [[name, str(count), f"`{value}`"] for name, count, value in digests(results)]
    return _table(["of", "cells", "SHA-256"], rows) + "\nLine by line: [metrics.csv](evidence/metrics.csv).\n"


def digest_file(results: Results) -> str:
    """docs/evidence/digest.txt."""
    head = (
        "# SHA-256 over the numbers of every metrics.json (python -m evidence collect); cells, then what they are of\n"
    )
    return head + "".join(f"{value}  {count}  {name}\n" for name, count, value in digests(results))


# What the tables share


def _datasets(results: Results) -> list[str]:
    return list(dict.fromkeys(key.dataset for key in results.expected if key.variant == BASE))


def _cells(results: Results, methods: Iterable[str]) -> list[tuple[str, str]]:
    return [(dataset, method) for dataset in _datasets(results) for method in methods]


def _over_seeds(
    results: Results, variant: str, dataset: str, method: str, names: Iterable[str], reading: str = STATED
) -> list[str]:
    found = results.over_seeds(variant, dataset, method).values()
    columns = [[cell.values[reading][name] for cell in found if reading in cell.values] for name in names]
    return [spread(values, len(results.seeds)) for values in columns]


def spread(values: Sequence[float | None], wanted: int) -> str:
    """Mean ± standard deviation, over how many seeds where they are not all; -- where the metric is undefined."""
    if not values:
        return "missing"
    defined = [value for value in values if value is not None]
    some = "" if len(defined) == wanted else f" ({len(defined)} of {wanted})"
    if not defined:
        return "--"
    deviation = f" ± {stdev(defined):.3f}" if len(defined) > 1 else ""
    return f"{mean(defined):.3f}{deviation}{some}"


def _difference(found: Difference | None, wanted: int) -> str:
    """'-0.054 [-0.099, -0.008] (-0.050, -0.061, -0.051)': pooled, its interval, and seed by seed."""
    if found is None:
        return "missing"
    each = ", ".join(map(_signed, found.each.values()))
    some = "" if len(found.each) == wanted else f"; {len(found.each)} of {wanted} seeds"
    bounds = f" [{', '.join(map(_signed, found.interval))}]" if found.interval else ""
    return f"{_signed(found.mean)}{bounds} ({each}{some})"


def _signed(value: float | None) -> str:
    return "--" if value is None else f"{round(value, 3) + 0.0:+.3f}"  # + 0.0: not -0.000


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _missing(results: Results, wanted) -> str:
    """What should stand in a table and does not, run by run."""
    absent: dict[str, list[Key]] = {}
    for key in results.missing(wanted):
        absent.setdefault(f"{key.variant}-{key.seed}", []).append(key)
    if not absent:
        return ""
    there = [key for key in results.cells if wanted(key)]
    runs = {f"{key.variant}-{key.seed}" for key in there}
    texts = [f"{name} ({_listed(keys, there)})" if name in runs else name for name, keys in absent.items()]
    return f"\nMissing: {'; '.join(texts)}.\n"


def _listed(absent: list[Key], there: list[Key]) -> str:
    """The methods that one run lacks; of a dataset that it lacks altogether only the name."""
    begun = {key[:3] for key in there}
    texts = [f"{key.dataset}/{key.method}" if key[:3] in begun else key.dataset for key in absent]
    return ", ".join(dict.fromkeys(texts))
