"""Rows that are combined from others, `methods: {NAME: {of: [ROW, ROW], fit: HOW}}`: what is wrong with them."""

from collections.abc import Iterator

from orce import methods
from orce.config.schema import Combined, Table
from orce.config.typed import typed
from orce.errors import BadInput
from orce.methods import Registry


def problems(registry: Registry) -> Iterator[str]:
    """Problems of all combined methods. Nothing else is to be asked of the registry before this."""
    given = {name: spec for name, spec in registry.given.items() if "of" in spec}
    for name, spec in given.items():
        combined = typed(spec, Combined, f"methods.{name}")
        if combined.fit not in methods.COMBINATIONS:
            yield f"methods.{name}.fit: {combined.fit!r}; expected {', '.join(methods.COMBINATIONS)}"
        if len({*combined.of}) < len(combined.of):
            yield f"methods.{name}.of: names a row twice"
    for name in given:
        if name in Registry().names():
            yield f"methods.{name}: {name!r} is a method of this package; choose another name for a combination"
    for name in given:
        yield from _rows(f"methods.{name}.of", name, registry)


def _rows(key: str, name: str, registry: Registry) -> Iterator[str]:
    try:
        judged = registry.judges(name)
    except BadInput as error:
        yield f"{key}: {error}"
        return
    if len(judged) > 1:
        own = ", ".join(sorted(judged - {"greedy"}))
        yield f"{key}: {own} judges answers of its own; combine rows that judge the same answers"
    if registry.fits(name):
        yield from _fitted_twice(key, name, registry)


def _fitted_twice(key: str, row: str, registry: Registry) -> Iterator[str]:
    """What is fitted on the set to calibrate on is known there only as fitted to that very set."""
    below = [fitted for part in registry.below(row) for fitted in registry.fitted(part)]
    if below:
        yield f"{key}: {below[0]} is fitted on the questions that {row} would be fitted on; name a row that fits nothing"


def table(key: str, spec: Table, registry: Registry) -> Iterator[str]:
    """Rows of a table that fit twice, or that are combined from confidence LLMs which a transfer does not name."""
    for row in spec.methods or ():
        try:
            method, leaves = registry.parse(row).method, registry.leaves(row)
        except BadInput:
            continue  # said elsewhere
        if registry.fits(row):
            yield from _fitted_twice(key, row, registry)
        own = [leaf for leaf in registry.with_weights(leaves) if registry.parse(leaf).source is None]
        if spec.kind == "transfer" and own and registry.get(method).of:
            named = f"{own[0]}-from-{spec.source or 'MODEL'}"
            yield f"{key}: {row} is combined from {own[0]} of the table's own models; name {named} in methods.{method}.of"
