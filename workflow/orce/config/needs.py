"""What a row of a table needs: access to the answer LLM, passes over it, a judge, labels. docs/which.md."""

from orce import methods
from orce.config import layout, settings
from orce.config.schema import Config
from orce.stage_settings import Frontier, Need

ACCESS = ("text", "log-probabilities", "weights", "given")  # from least to most; given: made elsewhere


def frontier(config: Config, names: list[str]) -> Frontier:
    """Settings of the frontier step: what every row of some tables needs."""
    registry, by_dataset = methods.of(config), {}
    for table in (config.tables[name] for name in names):
        rows = {row.method for row in layout.rows(table, registry)}
        by_dataset.setdefault(table.dataset, {}).update(
            {row: of_row(config, table.dataset, row) for row in sorted(rows)}
        )
    return Frontier(needs=by_dataset)


def of_row(config: Config, dataset: str, row: str) -> Need:
    """What a row needs for one question of a dataset; what its parts share, such as the K samples, counts once."""
    registry = methods.of(config)
    leaves = registry.leaves(row)
    kinds = [registry.kind(leaf) for leaf in leaves]
    samples = config.answers.samples if any(map(registry.reads_samples, leaves)) else 0
    asked = sum(kind in ("prompted", "asked") for kind in kinds)
    labels = _training_items(config, dataset) if any(_learned(registry, leaf) for leaf in leaves) else 0
    if registry.fitted(row):
        labels += _size(config, settings.calibrated_on(config, dataset), "test")
    access = max((_access(registry, leaf) for leaf in leaves), key=ACCESS.index)
    read_again = any(_reads_again(registry, leaf) for leaf in leaves)
    passes = samples + asked + read_again
    return Need(access=access, passes=passes, judged=kinds.count("stated"), labels=labels)


def _reads_again(registry: methods.Registry, leaf: str) -> bool:
    """Whether a model reads a prompt once more, as for P(True) or a probe."""
    return registry.kind(leaf) == "probed" or not registry.reads_only_logprobs(leaf)


def _access(registry: methods.Registry, leaf: str) -> str:
    known = {"external": "given", "probed": "weights"}
    return known.get(registry.kind(leaf)) or ("log-probabilities" if registry.reads(leaf) else "text")


def _learned(registry: methods.Registry, leaf: str) -> bool:
    kind = registry.kind(leaf)
    return kind == "probed" or (kind == "stated" and registry.weights(leaf) is not None)


def _training_items(config: Config, dataset: str) -> int:
    trained = settings.trained_on(config, dataset)
    return sum(_size(config, trained, split) for split in settings.TRAINING_SPLITS)


def _size(config: Config, dataset: str, split: str) -> int:
    """Examples of a split as the configuration says it; 0 where it takes what is there."""
    spec = config.datasets[dataset].splits.get(split)
    return spec.size if spec is not None and isinstance(spec.size, int) else 0
