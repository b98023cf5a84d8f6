"""The confidence methods of a configuration: the built-in ones, and the ones it names by path.

A method's name in a path may carry the reward of an ablation (orce-nrd), the model that its
confidence LLM was trained for (sft-from-llama3-8b) and a calibration (sft+platt). Two forms have no
module: confidences made elsewhere, `methods: {NAME: {path: FILE, label: TEXT}}`, and `methods:
{NAME: {of: [METHOD, METHOD], fit: HOW, label: TEXT}}`, combined from methods that judge the same
answers, HOW one of orce.methods.fitted.COMBINATIONS. Only `train` imports torch, only `fit` and
`apply` scikit-learn and scipy.
"""

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

from orce.errors import BadInput, did_you_mean
from orce.methods.method import TRAINED_ON, Method, from_path
from orce.settings.stage import PAPER_REWARD

__all__ = ["TRAINED_ON", "Method", "Name", "Registry", "known", "load", "of"]


@functools.cache
def known() -> dict[str, Method]:
    """The methods of this package, imported when they are first asked for: most stages have their
    settings, and need none.
    """
    from orce.methods import fitted, prompted, samples, trained

    return trained.METHODS | prompted.METHODS | samples.METHODS | fitted.METHODS


def load(module: str) -> Method:
    """The method of this package with a name, or in the Python file at a path. Raises BadInput for
    what it lacks.
    """
    from orce.methods import prompted

    if module in prompted.AS_TEXT:
        return prompted.AS_TEXT[module]
    return known()[module] if module in known() else from_path(module)


class Name(NamedTuple):
    method: str
    reward: str | None  # None: the paper's
    source: str | None  # the model that its confidence LLM was trained for; None: the same
    calibration: str | None = None


class Registry:
    """The methods of a configuration, by name.

    given: its `methods`, which maps NAME to the path of a module or to settings (with `module` for
    a path). own_rewards: its `rewards`, which maps NAME to the path of a module.
    """

    def __init__(self, given: dict | None = None, own_rewards: dict | None = None):
        from orce.align import rewards

        self.given: dict[str, dict[str, Any]] = {}
        for name, spec in (given or {}).items():
            self.given[name] = spec if isinstance(spec, dict) else {"module": spec}
        # {name: argument of rewards.load}
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
            label = spec.get("label", name)
            return Method(label, "fitted", members=tuple(spec["of"]), fit=fit, apply=apply)
        if name not in known() and "module" not in spec:
            meant = did_you_mean(name.lower(), self.names())
            raise BadInput(f"unknown method {name!r}; {meant}methods are {', '.join(self.names())}")
        return load(self.module(name))

    def settings(self, name: str) -> dict[str, Any]:
        given = {key: value for key, value in self.given.get(name, {}).items() if key != "module"}
        return self.get(name).settings | given

    def parse(self, text: str) -> Name:
        """'orce-nrd', 'sft-from-llama3-8b' or 'sft+platt' taken apart. Raises BadInput for an
        unknown part.
        """
        base, plus, calibration = text.partition("+")
        stem, _, source = base.partition("-from-")
        method, _, reward = stem.partition("-")
        if self.get(method).calibrates:
            raise BadInput(
                f"{text!r} is a calibration; name the method below it: METHOD+{method}, as in sft+{method}"
            )
        if plus and calibration not in self.calibrations():
            raise _unknown("calibration", calibration, text, self.calibrations())
        if reward and reward not in self.rewards:
            raise _unknown("reward", reward, text, self.rewards)
        return Name(method, reward or None, source or None, calibration or None)

    def find(self, text: str) -> Method:
        """The method of a name that may carry a reward, a source or a calibration, which is the
        method then.
        """
        name = self.parse(text)
        return self.get(name.calibration or name.method)

    def below(self, text: str) -> tuple[str, ...]:
        """The methods whose confidences this one is computed from: a combination's members, or the
        calibrated method.
        """
        name = self.parse(text)
        return (text.partition("+")[0],) if name.calibration else self.get(name.method).members

    def leaves(self, text: str, above: tuple[str, ...] = ()) -> list[str]:
        """The methods at the bottom of this one, each once: computed from no other. Often itself.

        Raises BadInput for a combination of itself.
        """
        if text in above:
            raise BadInput(
                f"methods.{text}.of: {' of '.join([*above, text])}; a row cannot be combined of itself"
            )
        leaves: list[str] = []
        for lower in self.below(text):
            leaves += self.leaves(lower, (*above, text))
        return list(dict.fromkeys(leaves)) or [text]

    def bottom(self, rows: Iterable[str]) -> list[str]:
        """The leaves of some rows, each once."""
        leaves: list[str] = []
        for row in rows:
            leaves += self.leaves(row)
        return list(dict.fromkeys(leaves))

    def own_fit(self, text: str) -> str | None:
        """Name of the calibration or combination that this method itself fits, on the data set to
        calibrate on; else None.
        """
        name = self.parse(text)
        method = self.get(name.method)
        if name.calibration:
            return name.calibration
        return self.given[name.method]["fit"] if method.members and method.fit else None

    def fitted(self, text: str) -> list[str]:
        """This method and the ones below it, where they fit something."""
        rows = [text] if self.own_fit(text) else []
        for lower in self.below(text):
            rows += self.fitted(lower)
        return rows

    def answers_scored(self, text: str) -> set[str]:
        """Whose answers a method's confidences are for: `greedy`, or the method whose own answers
        they are.
        """
        return {leaf if self.find(leaf).own else "greedy" for leaf in self.leaves(text)}

    def weights(self, text: str) -> str | None:
        """Folder name of a method's confidence LLM, including its reward; None if it has none or is
        untrained.
        """
        name = self.parse(text)
        method = self.get(name.method)
        if method.train:
            return name.method
        ablation = method.weights and name.reward not in (None, PAPER_REWARD)
        return f"{method.weights}-{name.reward}" if ablation else method.weights

    def with_weights(self, rows: Iterable[str]) -> list[str]:
        return [leaf for leaf in self.bottom(rows) if self.weights(leaf) is not None]

    def label(self, text: str) -> str:
        """The row of a method in a table: the reward's label in an ablation, else the method's own."""
        from orce.align import rewards

        name = self.parse(text)
        if name.reward:
            label = rewards.row_label(self.rewards[name.reward])
        else:
            label = self.get(name.method).label
        return f"{label} + {self.get(name.calibration).label}" if name.calibration else label


def _unknown(kind: str, name: str, text: str, known: Iterable[str]) -> BadInput:
    return BadInput(f"unknown {kind} {name!r} in method {text!r}; {kind}s are {', '.join(known)}")


def of(config: Any) -> Registry:
    """The registry of a configuration (orce.settings.schema.Config)."""
    return Registry(config.methods, config.rewards)
