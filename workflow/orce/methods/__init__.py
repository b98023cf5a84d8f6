"""The confidence methods of a configuration: those of this package, and its own.

A method's name in a path may carry the reward of an ablation (orce-nrd), the model that its
confidence LLM was trained for (sft-from-llama3-8b) and a calibration (sft+platt). A configuration
has three forms of its own methods:

    methods: {NAME: FILE.py}                                        a user's module
    methods: {NAME: {path: FILE, label: TEXT}}                      confidences made elsewhere
    methods: {NAME: {of: [METHOD, METHOD], fit: HOW, label: TEXT}}  a combination

A combination is of methods that judge the same answers, and HOW is one of
orce.methods.fitted.COMBINATIONS. Only `train` imports torch, only `fit` and `apply` scikit-learn
and scipy.
"""

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

from orce.errors import BadInput, did_you_mean
from orce.methods.method import Method, from_path
from orce.settings.stage import PAPER_REWARD

__all__ = ["Method", "Name", "Registry", "known", "load", "of"]


@functools.cache
def known() -> dict[str, Method]:
    """The methods of this package. Imported at the first call, as most stages need none."""
    from orce.methods import fitted, prompted, samples, trained

    return trained.METHODS | prompted.METHODS | samples.METHODS | fitted.METHODS


def load(module: str) -> Method:
    """The method with a name in this package, or in the Python file at a path. Raises BadInput for
    what the file lacks.
    """
    from orce.methods import prompted

    return (known() | prompted.AS_TEXT).get(module) or from_path(module)


class Name(NamedTuple):
    method: str
    reward: str | None  # None: the paper's
    source: str | None  # the model that its confidence LLM was trained for; None: the same
    calibration: str | None


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
        """The methods of a kind, or all, in alphabetical order."""
        own = [name for name, spec in self.given.items() if {"module", "path", "of"} & set(spec)]
        names = sorted({*known(), *own})
        return [name for name in names if kind in (None, self.get(name).kind)]

    def calibrations(self) -> list[str]:
        return [name for name in self.names("fitted") if self.get(name).calibrates]

    def trained(self) -> list[str]:
        return [name for name in self.names("stated") if self.get(name).train]

    def module(self, name: str) -> str:
        """A method as `load` takes it: its name in this package, or the path of its file."""
        return self.given.get(name, {}).get("module", name)

    def get(self, name: str) -> Method:
        """The method of a bare name. Raises BadInput, with the known ones, for an unknown name."""
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
        """A method's settings: its defaults, with what the configuration sets."""
        settings = self.get(name).settings | self.given.get(name, {})
        settings.pop("module", None)
        return settings

    def parse(self, text: str) -> Name:
        """'orce-nrd', 'sft-from-llama3-8b' or 'sft+platt' taken apart. Raises BadInput for an
        unknown part.
        """
        base, plus, calibration = text.partition("+")
        stem, _, source = base.partition("-from-")
        method, _, reward = stem.partition("-")
        if self.get(method).calibrates:
            remedy = f"name the method below it: METHOD+{method}, as in sft+{method}"
            raise BadInput(f"{text!r} is a calibration; {remedy}")
        if plus and calibration not in self.calibrations():
            raise _unknown("calibration", calibration, text, self.calibrations())
        if reward and reward not in self.rewards:
            raise _unknown("reward", reward, text, self.rewards)
        return Name(method, reward or None, source or None, calibration or None)

    def find(self, text: str) -> Method:
        """The method of any name; for a calibrated one the calibration."""
        name = self.parse(text)
        return self.get(name.calibration or name.method)

    def below(self, text: str) -> tuple[str, ...]:
        """The methods from whose confidences this one is computed: a combination's members, or the
        calibrated method.
        """
        name = self.parse(text)
        if name.calibration:
            return (text.partition("+")[0],)
        return self.get(name.method).members

    def leaves(self, text: str, above: tuple[str, ...] = ()) -> list[str]:
        """The methods, each once, from which this one is computed and that are computed from no
        other: often itself. Raises BadInput for a combination of itself.

        above: the methods on the way down to this one.
        """
        chain = (*above, text)
        if text in above:
            circle = f"{' of '.join(chain)}; a row cannot be combined of itself"
            raise BadInput(f"methods.{text}.of: {circle}")
        lower = self.below(text)
        return self.bottom(lower, chain) if lower else [text]

    def bottom(self, rows: Iterable[str], above: tuple[str, ...] = ()) -> list[str]:
        """The leaves of some methods, each once."""
        leaves: dict[str, None] = {}
        for row in rows:
            leaves |= dict.fromkeys(self.leaves(row, above))
        return list(leaves)

    def own_fit(self, text: str) -> str | None:
        """The calibration or combination that this method fits on the data set to calibrate on,
        methods below it aside; else None.
        """
        name = self.parse(text)
        if name.calibration:
            return name.calibration
        method = self.get(name.method)
        return self.given[name.method]["fit"] if method.members and method.fit else None

    def fitted(self, text: str) -> list[str]:
        """This method and all below it that have an `own_fit`."""
        rows = [text] if self.own_fit(text) else []
        for lower in self.below(text):
            rows += self.fitted(lower)
        return rows

    def answers_scored(self, text: str) -> set[str]:
        """Whose answers a method's confidences are for: `greedy`, or the method whose own answers
        they are.
        """
        return {leaf if self.find(leaf).own_answer else "greedy" for leaf in self.leaves(text)}

    def weights(self, text: str) -> str | None:
        """The folder of a method's confidence LLM, whose name has the reward of an ablation; None
        for a method without one, or with the untrained model.
        """
        name = self.parse(text)
        method = self.get(name.method)
        if method.train:
            return name.method
        if method.weights is None or name.reward in (None, PAPER_REWARD):
            return method.weights
        return f"{method.weights}-{name.reward}"

    def with_weights(self, rows: Iterable[str]) -> list[str]:
        """The leaves of some methods that have a trained confidence LLM."""
        return [leaf for leaf in self.bottom(rows) if self.weights(leaf) is not None]

    def label(self, text: str) -> str:
        """The name of a method's row in a table: the reward's in an ablation, else its own."""
        from orce.align import rewards

        name = self.parse(text)
        if name.reward:
            label = rewards.row_label(self.rewards[name.reward])
        else:
            label = self.get(name.method).label
        return f"{label} + {self.get(name.calibration).label}" if name.calibration else label


def _unknown(kind: str, name: str, text: str, names: Iterable[str]) -> BadInput:
    return BadInput(f"unknown {kind} {name!r} in method {text!r}; {kind}s are {', '.join(names)}")


def of(config: Any) -> Registry:
    """The registry of a configuration (orce.settings.schema.Config)."""
    return Registry(config.methods, config.rewards)
