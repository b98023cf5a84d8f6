"""The confidence methods of a configuration: the built-in ones, and the ones it names by path.

A method's name in a path may carry the reward of an ablation (orce-nrd), the model that its confidence LLM was trained for
(sft-from-llama3-8b) and a calibration (sft+platt). Two forms have no module: confidences made elsewhere, `methods: {NAME: {path:
FILE, label: TEXT}}`, and `methods: {NAME: {of: [METHOD, METHOD], fit: HOW, label: TEXT}}`, combined from methods that judge the same
answers, HOW one of orce.methods.fitted.COMBINATIONS. Only `train` imports torch, only `fit` and `apply` scikit-learn and scipy.
"""

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

from orce.errors import BadInput
from orce.methods.method import TRAINED_ON, Method, from_path
from orce.settings.stage import PAPER

__all__ = ["TRAINED_ON", "Method", "Name", "Registry", "known", "load", "of"]


@functools.cache
def known() -> dict[str, Method]:
    """The methods of this package, imported when they are first asked for: most stages have their settings, and need none."""
    from orce.methods import fitted, prompted, samples, trained

    return trained.METHODS | prompted.METHODS | samples.METHODS | fitted.METHODS


def load(module: str) -> Method:
    """The method of this package with a name, or in the Python file at a path. Raises BadInput for what it lacks."""
    return known()[module] if module in known() else from_path(module)


class Name(NamedTuple):
    method: str
    reward: str | None  # None: the paper's
    source: str | None  # the model that its confidence LLM was trained for; None: the same
    calibration: str | None = None


class Registry:
    """given: the config's `methods`, which maps NAME to the path of a module or to settings (with `module` for a path)."""

    def __init__(self, given: dict | None = None, own_rewards: dict | None = None):
        specs = (given or {}).items()
        self.given = {
            name: spec if isinstance(spec, dict) else {"module": spec} for name, spec in specs
        }
        from orce.align import rewards

        # their arguments of rewards.load
        self.rewards = {name: name for name in rewards.LABELS} | (own_rewards or {})

    def names(self, kind: str | None = None) -> list[str]:
        own = [name for name, spec in self.given.items() if {"module", "path", "of"} & set(spec)]
        return [name for name in sorted({*known(), *own}) if kind in (None, self.get(name).kind)]

    def calibrations(self) -> list[str]:
        return [name for name in self.names("fitted") if self.get(name).calibrates]

    def trained(self) -> list[str]:
        return [name for name in self.names("stated") if self.get(name).train]

    def module(self, name: str) -> str:
        """The argument of `load` for a method: its name in this package, or the path of its file."""
        return self.given.get(name, {}).get("module", name)

    def get(self, name: str) -> Method:
        """A method. Raises BadInput that lists the known methods."""
        spec = self.given.get(name, {})
        if "path" in spec:
            return Method(spec.get("label", name), "external")
        if "of" in spec:
            from orce.methods import fitted

            fit, apply = fitted.COMBINATIONS.get(spec["fit"], (None, None))
            return Method(
                spec.get("label", name), "fitted", of=tuple(spec["of"]), fit=fit, apply=apply
            )
        if name not in known() and "module" not in spec:
            meant = f"did you mean {name.lower()!r}? " if name.lower() in self.names() else ""
            raise BadInput(f"unknown method {name!r}; {meant}methods are {', '.join(self.names())}")
        return load(self.module(name))

    def settings(self, name: str) -> dict[str, Any]:
        given = {key: value for key, value in self.given.get(name, {}).items() if key != "module"}
        return self.get(name).settings | given

    def parse(self, text: str) -> Name:
        """'orce-nrd', 'sft-from-llama3-8b' or 'sft+platt' taken apart. Raises BadInput for an unknown part."""
        base, plus, calibration = text.partition("+")
        stem, _, source = base.partition("-from-")
        method, _, reward = stem.partition("-")
        if self.get(method).calibrates:
            raise BadInput(
                f"{text!r} is a calibration; name the method below it: METHOD+{method}, as in sft+{method}"
            )
        for kind, name, known in (
            ("calibration", calibration if plus else None, self.calibrations),
            ("reward", reward or None, lambda: self.rewards),
        ):
            if name is not None and name not in known():
                raise BadInput(
                    f"unknown {kind} {name!r} in method {text!r}; {kind}s are {', '.join(known())}"
                )
        return Name(method, reward or None, source or None, calibration or None)

    def find(self, text: str) -> Method:
        """The method of a name that may carry a reward, a source or a calibration, which is the method then."""
        name = self.parse(text)
        return self.get(name.calibration or name.method)

    def below(self, text: str) -> tuple[str, ...]:
        """The methods whose confidences this one is computed from: a combination's members, or the calibrated method."""
        name = self.parse(text)
        return (text.partition("+")[0],) if name.calibration else self.get(name.method).of

    def leaves(self, text: str, above: tuple[str, ...] = ()) -> list[str]:
        """The methods at the bottom of this one, each once: computed from no other. Often itself.

        Raises BadInput for a combination of itself.
        """
        if text in above:
            raise BadInput(
                f"methods.{text}.of: {' of '.join([*above, text])}; a row cannot be combined of itself"
            )
        leaves = [leaf for below in self.below(text) for leaf in self.leaves(below, (*above, text))]
        return list(dict.fromkeys(leaves)) or [text]

    def bottom(self, rows: Iterable[str]) -> list[str]:
        return list(dict.fromkeys(leaf for row in rows for leaf in self.leaves(row)))

    def fits(self, text: str) -> str | None:
        """What a method fits on the data set to calibrate on, itself and not in one below: a calibration or a combination."""
        name = self.parse(text)
        method = self.get(name.method)
        return name.calibration or (
            self.given[name.method]["fit"] if method.of and method.fit else None
        )

    def fitted(self, text: str) -> list[str]:
        """This method and the ones below it, where they fit something."""
        return [
            *([text] if self.fits(text) else []),
            *(row for base in self.below(text) for row in self.fitted(base)),
        ]

    def judges(self, text: str) -> set[str]:
        """Whose answers a method judges: `greedy`, or the method whose own answers they are."""
        return {leaf if self.find(leaf).own else "greedy" for leaf in self.leaves(text)}

    def weights(self, text: str) -> str | None:
        """Folder name of a method's confidence LLM, including its reward; None if it has none or is untrained."""
        name = self.parse(text)
        method = self.get(name.method)
        if method.train:
            return name.method
        ablation = method.weights and name.reward not in (None, PAPER)
        return f"{method.weights}-{name.reward}" if ablation else method.weights

    def with_weights(self, rows: Iterable[str]) -> list[str]:
        return [leaf for leaf in self.bottom(rows) if self.weights(leaf) is not None]

    def label(self, text: str) -> str:
        """The row of a method in a table: the reward's label in an ablation, else the method's own."""
        from orce.align import rewards

        name = self.parse(text)
        label = (
            rewards.row_label(self.rewards[name.reward])
            if name.reward
            else self.get(name.method).label
        )
        return f"{label} + {self.get(name.calibration).label}" if name.calibration else label


def of(config: Any) -> Registry:
    """The registry of a configuration (orce.settings.schema.Config)."""
    return Registry(config.methods, config.rewards)
