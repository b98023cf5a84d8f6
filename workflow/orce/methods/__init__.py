"""The registry of confidence methods: this package's modules, and those that a config names by path.

A method is one module with a LABEL, its row in the tables, and a KIND; docs/extending.md has the table of the kinds with the
functions that each needs (KINDS, below). Further names, all optional: SETTINGS, the defaults of its settings
(`methods: {NAME: {...}}` in the config); READS of a measured or probed method; WEIGHTS or `train` of a stated one, and TRAINED_ON, the
splits whose pairs `train`, or the `fit` of a probed method, gets.

A method's name in a path may carry the reward of an ablation (orce-nrd), the model that its confidence LLM was
trained for (sft-from-llama3-8b) and a calibration (sft+platt). Importing a method is cheap, because the Snakefile does
it. Only `train` imports torch, only `fit` and `apply` import scikit-learn and scipy.

Two KINDS have no module. Confidences made elsewhere are external, `methods: {NAME: {path: FILE, label: TEXT}}` in the config;
`methods: {NAME: {of: [ROW, ROW], fit: HOW, label: TEXT}}` is combined from other rows that judge the same answers, HOW one of
orce.methods.combinations.
"""

import importlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from orce.alignment import registry as rewards
from orce.answers import places
from orce.errors import BadInput
from orce.methods import combinations
from orce.runtime import contracts, modules
from orce.runtime.contracts import agreed, anything, is_conversation, is_pair, is_read
from orce.runtime.modules import from_file, require


def _in_unit_interval(value, arguments: tuple) -> bool:
    """One probability for each of the confidences that a calibration's `apply` got."""
    import numpy as np

    found = np.asarray(value, dtype=float)
    return found.shape == np.shape(arguments[1]) and bool(((found >= 0) & (found <= 1)).all())


def _in_unit_interval_each(value, arguments: tuple) -> bool:
    """One probability for each item whose features a probed method's `apply` got."""
    import numpy as np

    found, n = np.asarray(value, dtype=float), len(next(iter(arguments[1].values())))
    return found.shape == (n,) and bool(((found >= 0) & (found <= 1)).all())


def _is_json(value, _) -> bool:
    return isinstance(value, dict) and bool(json.dumps(value, allow_nan=False))


_MESSAGES = "chat messages, a list of {role, content}"
KINDS = {
    "sampled": (agreed("state(answers, example, task) -> (answer, confidence from 0 to 1)", is_pair),),
    "prompted": (
        agreed(f"prompt(example, task, settings) -> {_MESSAGES}", is_conversation),
        agreed(
            "read(text, example, task, settings) -> (answer or None, confidence from 0 to 1 or None)",
            is_pair,
        ),
    ),
    "stated": (),
    "asked": (
        agreed(f"ask(example, answer, task, settings) -> {_MESSAGES}", is_conversation),
        agreed("read(text, settings) -> confidence from 0 to 1 or None", is_read),
    ),
    "measured": (agreed("measure(seen, example, task) -> confidence from 0 to 1 or None", is_read),),
    "probed": (
        agreed("fit(features, targets) -> parameters, a dict that JSON can hold", _is_json),
        agreed("apply(parameters, features) -> probabilities from 0 to 1, one for each item", _in_unit_interval_each),
    ),
    "calibrated": (
        agreed("fit(confidence, correct) -> parameters, a dict that JSON can hold", _is_json),
        agreed(
            "apply(parameters, confidence) -> probabilities from 0 to 1, one for each confidence", _in_unit_interval
        ),
    ),
}
TRAIN = agreed("train(pairs, settings, out) -> the confidence LLM in the folder out", anything)
READS = ("logprobs", "likelihoods", "sample_logprobs")  # what a measured method may ask for
FOLDERS = ("sft", "dpo", None)  # the WEIGHTS that a stated method may name
TRAINED_ON = ("sft", "rl")


class Method(Protocol):
    """A method's module; see the package's docstring."""

    LABEL: str
    KIND: str


@dataclass
class External:
    """A method that ran elsewhere: its confidences are in a file (orce.answers.given_records)."""

    LABEL: str
    KIND: str = "external"


@dataclass
class Combined:
    """A method whose confidences are computed from the rows `of`; see orce.methods.combinations."""

    LABEL: str
    of: tuple[str, ...]
    fit: str
    KIND: str = "combined"


class Name(NamedTuple):
    """A method's name in a path, taken apart: method, reward (None: the paper's), source model (None: the same),
    calibration (None: none)."""

    method: str
    reward: str | None
    source: str | None
    calibration: str | None = None


class Registry:
    """The methods of one configuration.

    given: the config's `methods`, which maps NAME to the path of a module or to settings (with `module` for a path).
    """

    def __init__(self, given: dict | None = None, own_rewards: dict | None = None):
        self.given = {
            name: spec if isinstance(spec, dict) else {"module": spec} for name, spec in (given or {}).items()
        }
        self.rewards = rewards.Registry(own_rewards)

    def names(self, kind: str | None = None) -> list[str]:
        """Names of all methods, or of one kind's."""
        own = [name for name, spec in self.given.items() if {"module", "path", "of"} & set(spec)]
        found = sorted({*modules.names(__name__), *own})
        return [name for name in found if kind in (None, self.get(name).KIND)]

    def trained(self) -> list[str]:
        """Names of the methods with their own training."""
        return [name for name in self.names("stated") if hasattr(self.get(name), "train")]

    def module(self, name: str) -> str:
        """The argument of `load` for a method: its name in this package, or the path of its file."""
        return self.given.get(name, {}).get("module", name)

    def get(self, name: str) -> Method:
        """A method's module. Raises BadInput that lists the known methods."""
        if "path" in self.given.get(name, {}):
            return External(self.given[name].get("label", name))
        if "of" in self.given.get(name, {}):
            spec = self.given[name]
            return Combined(spec.get("label", name), tuple(spec["of"]), spec["fit"])
        if name not in modules.names(__name__) and "module" not in self.given.get(name, {}):
            meant = f"did you mean {name.lower()!r}? " if name.lower() in self.names() else ""
            raise BadInput(f"unknown method {name!r}; {meant}methods are {', '.join(self.names())}")
        return load(self.module(name))

    def settings(self, name: str) -> dict:
        """A method's settings: the configuration's over the defaults of its SETTINGS."""
        defaults = getattr(self.get(name), "SETTINGS", {})
        return defaults | {key: value for key, value in self.given.get(name, {}).items() if key != "module"}

    def parse(self, text: str) -> Name:
        """'orce-nrd', 'sft-from-llama3-8b' or 'sft+platt' taken apart. Raises BadInput for an unknown part."""
        base, plus, calibration = text.partition("+")
        stem, _, source = base.partition("-from-")
        method, _, reward = stem.partition("-")
        if self.get(method).KIND == "calibrated":
            raise BadInput(f"{text!r} is a calibration; name the method below it: METHOD+{method}, as in sft+{method}")
        if plus and calibration not in self.names("calibrated"):
            known = ", ".join(self.names("calibrated"))
            raise BadInput(f"unknown calibration {calibration!r} in method {text!r}; calibrations are {known}")
        if reward and reward not in self.rewards.names():
            known = ", ".join(self.rewards.names())
            raise BadInput(f"unknown reward {reward!r} in method {text!r}; rewards are {known}")
        return Name(method, reward or None, source or None, calibration or None)

    def kind(self, text: str) -> str:
        """The KIND of a method, also of one that carries a reward, a source or a calibration."""
        name = self.parse(text)
        return "calibrated" if name.calibration else self.get(name.method).KIND

    def below(self, text: str) -> tuple[str, ...]:
        """The rows whose confidences a row is computed from: a combined one's parts, what a calibration is on top of."""
        name = self.parse(text)
        return (text.partition("+")[0],) if name.calibration else getattr(self.get(name.method), "of", ())

    def leaves(self, text: str, above: tuple[str, ...] = ()) -> list[str]:
        """The rows at the bottom of a row, each once: those that are computed from no other. Often the row itself.

        Raises BadInput for a combination of itself.
        """
        if text in above:
            raise BadInput(f"methods.{text}.of: {' of '.join([*above, text])}; a row cannot be combined of itself")
        found = [leaf for part in self.below(text) for leaf in self.leaves(part, (*above, text))]
        return list(dict.fromkeys(found)) or [text]

    def fits(self, text: str) -> str | None:
        """What a row fits on the data set to calibrate on, itself and not in a row below: a calibration or a combination."""
        name = self.parse(text)
        method = self.get(name.method)
        how = method.fit if isinstance(method, Combined) else None
        return name.calibration or (how if how and hasattr(load(f"combinations.{how}"), "fit") else None)

    def fitted(self, text: str) -> list[str]:
        """The rows that fit something, among a row and those below it."""
        return [*([text] if self.fits(text) else []), *(row for part in self.below(text) for row in self.fitted(part))]

    def judges(self, text: str) -> set[str]:
        """Whose answers a row judges: `greedy`, or the method whose own answers they are."""
        kinds = {leaf: self.kind(leaf) for leaf in self.leaves(text)}
        return {leaf if kind in ("sampled", "prompted") else "greedy" for leaf, kind in kinds.items()}

    def reads(self, text: str) -> tuple[str, ...]:
        """What the method of a row reads beside the answers: its READS."""
        return tuple(getattr(self.get(self.parse(text).method), "READS", ()))

    def compares(self, text: str) -> bool:
        """Whether a row is computed from the K samples alone."""
        return self.kind(text) == "sampled" or (self.kind(text) == "measured" and not self.reads(text))

    def reads_samples(self, text: str) -> bool:
        """Whether a row reads samples beside the greedy answer: P(True), of the likelihoods, shows them as ideas."""
        return self.compares(text) or not self.reads_only_logprobs(text)

    def likelihoods(self, name: str) -> list[str]:
        """The files of log-probabilities that a measured method reads: likelihoods, sample_likelihoods."""
        reads = set(self.reads(name))
        needed = {"likelihoods": {"likelihoods", "logprobs"}, "sample_likelihoods": {"sample_logprobs"}}
        return [file for file, what in needed.items() if self.kind(name) == "measured" and what & reads]

    def reads_likelihoods(self, name: str) -> bool:
        """Whether a measured method needs the answer LLM's log-probabilities."""
        return bool(self.likelihoods(name))

    def reads_only_logprobs(self, name: str) -> bool:
        """Whether the greedy answer's token log-probabilities, which a server may give, suffice."""
        return not {"likelihoods", "sample_logprobs"} & set(self.reads(name))

    def states(self, name: str) -> list[str]:
        """The files of hidden states that a probed method reads: `answers` of the answer LLM, `judge` of the confidence LLM."""
        return sorted({places.PLACES[place] for place in self.reads(name)}) if self.kind(name) == "probed" else []

    def needs_weights(self, name: str) -> bool:
        """Whether a method reads the answer LLM's log-probabilities or hidden states."""
        return self.reads_likelihoods(name) or "answers" in self.states(name)

    def weights(self, text: str) -> str | None:
        """Folder name of a method's confidence LLM, including its reward; None if it has none or is untrained."""
        name = self.parse(text)
        if name.method in self.trained():
            return name.method
        folder = getattr(self.get(name.method), "WEIGHTS", None)
        return folder if folder is None or name.reward in (None, rewards.PAPER) else f"{folder}-{name.reward}"

    def with_weights(self, rows: Iterable[str]) -> list[str]:
        """Those of some rows, or of the rows at their bottom, whose confidence LLM is trained."""
        leaves = dict.fromkeys(leaf for row in rows for leaf in self.leaves(row))
        return [leaf for leaf in leaves if self.weights(leaf) is not None]

    def probed(self, rows: Iterable[str]) -> list[str]:
        """Those of some rows, or of the rows at their bottom, that are fitted on hidden states."""
        leaves = dict.fromkeys(leaf for row in rows for leaf in self.leaves(row))
        return [leaf for leaf in leaves if self.kind(leaf) == "probed"]

    def label(self, text: str) -> str:
        """The row of a method in a table: the reward's label in an ablation, else the method's own."""
        name = self.parse(text)
        label = self.rewards.label(name.reward) if name.reward else self.get(name.method).LABEL
        return f"{label} + {self.get(name.calibration).LABEL}" if name.calibration else label


class Configured(Protocol):
    """What a configuration says of methods and rewards (orce.config.schema.Config)."""

    methods: Any
    rewards: Any


def of(config: Configured) -> Registry:
    """The registry of a configuration."""
    return Registry(config.methods, config.rewards)


def ways_to_combine() -> tuple[str, ...]:
    """What `fit` of a combined method can be."""
    return modules.names(combinations.__name__)


def load(module: str) -> Any:
    """The method in a module of this package, or in the Python file at a path. Raises BadInput for what it lacks."""
    if not module.endswith(".py"):
        return importlib.import_module(f"orce.methods.{module}")
    found = from_file(module)
    require(found, module, ("LABEL", "KIND"), "a method")
    if found.KIND not in KINDS:
        raise BadInput(f"{module}: KIND is {found.KIND!r}; a method is {', '.join(KINDS)}")
    needed = KINDS[found.KIND]
    require(found, module, [one.name for one in needed], f"a {found.KIND} method")
    if found.KIND == "stated" and not hasattr(found, "train"):
        require(found, module, ("WEIGHTS",), "a stated method without a training of its own")
    _check_values(found, module)
    return contracts.kept(found, module, (*needed, TRAIN) if found.KIND == "stated" else needed)


def _check_values(found, path: str) -> None:
    reads, weights, schema = (getattr(found, name, None) for name in ("READS", "WEIGHTS", "SETTINGS"))
    if found.KIND == "probed":
        if not isinstance(reads, tuple | list) or not reads or any(one not in places.PLACES for one in reads):
            raise BadInput(
                f"{path}: READS is {reads!r}; a probed method reads one or more of {', '.join(places.PLACES)}"
            )
    elif reads is not None and (not isinstance(reads, tuple | list) or any(one not in READS for one in reads)):
        known = " or ".join(f'("{one}",)' for one in READS)
        raise BadInput(f"{path}: READS is {reads!r}; expected {known}")
    if found.KIND == "stated" and weights not in FOLDERS:
        raise BadInput(f"{path}: WEIGHTS is {weights!r}; expected 'sft', 'dpo' or None, the untrained model")
    if schema is not None and not isinstance(schema, dict):
        raise BadInput(f"{path}: SETTINGS is {schema!r}; expected a dict of the settings' defaults")
