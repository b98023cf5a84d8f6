"""A confidence method, and the ones that a configuration names by the path of a Python file
(docs/extending.md).
"""

import base64
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from orce.errors import BadInput
from orce.runtime.modules import (
    Contract,
    from_file,
    is_conversation,
    is_pair,
    is_read,
    keep_contracts,
    require,
)

Function = Any  # a function, or None in a method of another kind
# Of hidden states, and their file, states/FILE.jsonl.
PLACES = {"question": "answers", "answer": "answers", "judge": "judge"}
# of the layers whose states are kept, as shares of the model's
DEPTHS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
NUMBERS = "<f2"  # of a stored state: float16, little-endian
LARGEST = 65504.0  # the largest of them
# the splits of the pairs that a training gets, and the `fit` on hidden states
TRAINED_ON = ("sft", "rl")


@dataclass(frozen=True)
class Method:
    """How a confidence is made. kind: prompted, measured, stated, fitted or external.

    label: its row in the tables. settings: its settings in the configuration, with their defaults.
    reads: what it is given beside the answers. weights: the folder of a stated one's confidence
    LLM, "sft", "dpo" or None, the untrained model. members: the methods combined. answer: what the
    follow-up question calls a prompted method's answer.
    """

    label: str
    kind: str
    reads: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    weights: str | None = None
    trained_on: tuple[str, ...] = TRAINED_ON
    members: tuple[str, ...] = ()
    answer: str = "this answer"
    prompt: Function = None  # of a prompted method that answers too
    ask: Function = None  # of a prompted method that is asked about the greedy answer
    read: Function = None
    measure: Function = None  # of a measured method of the greedy answer
    state: Function = None  # of a measured method that chooses the answer
    train: Function = None  # of a stated method with its own training
    fit: Function = None
    apply: Function = None

    @property
    def own(self) -> bool:
        """Whether it judges an answer of its own, not the greedy one."""
        return bool(self.prompt or self.state)

    @property
    def compares(self) -> bool:
        """Whether it is computed from the K samples alone."""
        return self.kind == "measured" and not self.reads

    @property
    def likelihoods(self) -> list[str]:
        """The files of log-probabilities that it reads."""
        needed = {
            "likelihoods": {"likelihoods", "logprobs"},
            "sample_likelihoods": {"sample_logprobs"},
        }
        return [file for file, what in needed.items() if what & set(self.reads)]

    @property
    def logprobs_suffice(self) -> bool:
        """Whether the greedy answer's token log-probabilities, which a server may give, are enough."""
        return not {"likelihoods", "sample_logprobs"} & set(self.reads)

    @property
    def states(self) -> list[str]:
        """The files of hidden states that it reads: `answers` of the answer LLM, `judge` of the
        confidence LLM.
        """
        return sorted({PLACES[position] for position in self.reads if position in PLACES})

    @property
    def calibrates(self) -> bool:
        """Whether it is a map of another method's confidences, METHOD+NAME."""
        return self.kind == "fitted" and not self.reads and not self.members


def _is_json(value, _) -> bool:
    return isinstance(value, dict) and bool(json.dumps(value, allow_nan=False))


def _is_probability_each(value, arguments: tuple) -> bool:
    """One probability for each confidence, or for each item of {position: states}."""
    values = np.asarray(value, dtype=float)
    features = arguments[1]
    n = len(next(iter(features.values())) if isinstance(features, dict) else features)
    return values.shape == (n,) and bool(((values >= 0) & (values <= 1)).all())


MESSAGES = "chat messages, a list of {role, content}"
ANSWERS = (
    Contract(f"prompt(example, task, settings) -> {MESSAGES}", is_conversation),
    Contract(
        "read(text, example, task, settings) -> (answer or None, confidence from 0 to 1 or None)",
        is_pair,
    ),
)
ASKED = (
    Contract(f"ask(example, answer, task, settings) -> {MESSAGES}", is_conversation),
    Contract("read(text, settings) -> confidence from 0 to 1 or None", is_read),
)
FITTED = (
    Contract("fit(features, targets) -> parameters, a dict that JSON can hold", _is_json),
    Contract(
        "apply(parameters, features) -> probabilities from 0 to 1, one for each item",
        _is_probability_each,
    ),
)
FUNCTIONS = {  # kind: the sets of functions of which a method has one
    "prompted": (ANSWERS, ASKED),
    "measured": (
        (Contract("measure(seen, example, task) -> confidence from 0 to 1 or None", is_read),),
        (Contract("state(answers, example, task) -> (answer, confidence from 0 to 1)", is_pair),),
    ),
    "stated": (
        (Contract("train(pairs, settings, out) -> the confidence LLM in the folder out"),),
        (),
    ),
    "fitted": (FITTED,),
}
READS = {"measured": ("logprobs", "likelihoods", "sample_logprobs"), "fitted": tuple(PLACES)}


# what a user's method may set beside LABEL and KIND: fields of Method
OPTIONS = ("TRAINED_ON", "READS", "SETTINGS", "WEIGHTS", "ANSWER")


def packed(state: Any) -> str:
    """A hidden state as text: float16, little-endian, in base64."""
    return base64.b64encode(np.clip(state, -LARGEST, LARGEST).astype(NUMBERS).tobytes()).decode()


def unpacked(layers: list[str]) -> Any:
    """The states of an item at a position, [layers, size], in float32."""
    states = [np.frombuffer(base64.b64decode(layer), NUMBERS) for layer in layers]
    return np.stack(states).astype(np.float32)


def from_path(path: str) -> Method:
    """The method in a Python file. Raises BadInput for what it lacks."""
    module = from_file(path)
    require(module, path, ("LABEL", "KIND"), "a method")
    if module.KIND not in FUNCTIONS:
        raise BadInput(f"{path}: KIND is {module.KIND!r}; a method is {', '.join(FUNCTIONS)}")
    first, *rest = FUNCTIONS[module.KIND]
    needed = next((group for group in rest if group and hasattr(module, group[0].name)), first)
    if module.KIND == "stated" and not hasattr(module, "train"):
        require(module, path, ("WEIGHTS",), "a stated method without a training of its own")
        needed = ()
    require(module, path, [function.name for function in needed], f"a {module.KIND} method")
    options = {name: getattr(module, name) for name in OPTIONS if hasattr(module, name)}
    expected = {}
    trained_on = options.get("TRAINED_ON", TRAINED_ON)
    listed = isinstance(trained_on, tuple | list) and bool(trained_on)
    if not listed or not set(trained_on) <= set(TRAINED_ON):
        expected["TRAINED_ON"] = f"some of {', '.join(TRAINED_ON)}"
    reads = options.get("READS", ())
    may_read = READS.get(module.KIND, ())
    if isinstance(reads, str) or not set(reads) <= set(may_read):
        expected["READS"] = " or ".join(f'("{name}",)' for name in may_read) or "none"
    if not isinstance(options.get("SETTINGS", {}), dict):
        expected["SETTINGS"] = "a dict of the settings' defaults"
    if options.get("WEIGHTS") not in ("sft", "dpo", None):
        expected["WEIGHTS"] = "'sft', 'dpo' or None, the untrained model"
    for name, right in expected.items():
        raise BadInput(f"{path}: {name} is {options[name]!r}; expected {right}")
    watched = keep_contracts(module, path, needed)
    fields = {function.name: getattr(watched, function.name) for function in needed}
    for name, value in options.items():
        fields[name.lower()] = tuple(value) if isinstance(value, list) else value
    return Method(module.LABEL, module.KIND, **fields)
