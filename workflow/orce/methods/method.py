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
# The splits whose items train a confidence LLM, and fit a probe.
TRAINED_ON = ("sft", "rl")
# The positions of hidden states, and the file that each is in, states/FILE.jsonl.
PLACES = {"question": "answers", "answer": "answers", "judge": "judge"}
# The layers whose states are kept, as shares of the model's depth.
DEPTHS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
STORED = "<f2"  # a state's numbers: float16, little-endian
LARGEST = 65504.0  # of float16


@dataclass(frozen=True)
class Method:
    """How a confidence is made. kind: prompted, measured, stated, fitted or external.

    label: its row in the tables. reads: what it is given beside the answers. settings: its settings
    in the configuration, with their defaults. weights: the folder of a stated method's confidence
    LLM, "sft" or "dpo"; None for the untrained model. trained_on: the splits of the items that
    `train` gets, or `fit` on hidden states. members: the methods that are combined. answer: what
    the follow-up question calls a prompted method's answer.
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
    def own_answer(self) -> bool:
        """Whether it judges an answer of its own, not the greedy one."""
        return bool(self.prompt or self.state)

    @property
    def compares(self) -> bool:
        """Whether it is computed from the K samples alone."""
        return self.kind == "measured" and not self.reads

    @property
    def likelihoods(self) -> list[str]:
        """The files of log-probabilities that it reads."""
        files = []
        if {"likelihoods", "logprobs"} & set(self.reads):
            files.append("likelihoods")
        if "sample_logprobs" in self.reads:
            files.append("sample_likelihoods")
        return files

    @property
    def logprobs_suffice(self) -> bool:
        """Whether it needs no log-probabilities beyond those of the greedy answer's tokens, which a
        server may give.
        """
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


# What the functions of a user's method take and give


def _is_json(value, _) -> bool:
    return isinstance(value, dict) and bool(json.dumps(value, allow_nan=False))


def _is_probability_each(value, arguments: tuple) -> bool:
    """One probability for each confidence, or for each item of {position: states}."""
    values = np.asarray(value, dtype=float)
    features = arguments[1]
    n = len(next(iter(features.values())) if isinstance(features, dict) else features)
    return values.shape == (n,) and bool(((values >= 0) & (values <= 1)).all())


MESSAGES = "chat messages, a list of {role, content}"
FUNCTIONS = {  # kind: the sets of functions of which a method has one
    "prompted": (
        (
            Contract(f"prompt(example, task, settings) -> {MESSAGES}", is_conversation),
            Contract(
                "read(text, example, task, settings)"
                " -> (answer or None, confidence from 0 to 1 or None)",
                is_pair,
            ),
        ),
        (
            Contract(f"ask(example, answer, task, settings) -> {MESSAGES}", is_conversation),
            Contract("read(text, settings) -> confidence from 0 to 1 or None", is_read),
        ),
    ),
    "measured": (
        (Contract("measure(seen, example, task) -> confidence from 0 to 1 or None", is_read),),
        (Contract("state(answers, example, task) -> (answer, confidence from 0 to 1)", is_pair),),
    ),
    "stated": ((Contract("train(pairs, settings, out) -> the confidence LLM in the folder out"),),),
    "fitted": (
        (
            Contract("fit(features, targets) -> parameters, a dict that JSON can hold", _is_json),
            Contract(
                "apply(parameters, features) -> probabilities from 0 to 1, one for each item",
                _is_probability_each,
            ),
        ),
    ),
}
READS = {"measured": ("logprobs", "likelihoods", "sample_logprobs"), "fitted": tuple(PLACES)}
# What a user's method may set beside LABEL and KIND: fields of Method.
OPTIONS = ("TRAINED_ON", "READS", "SETTINGS", "WEIGHTS", "ANSWER")


def from_path(path: str) -> Method:
    """The method in a Python file. Raises BadInput for what it lacks."""
    module = from_file(path)
    require(module, path, ("LABEL", "KIND"), "a method")
    if module.KIND not in FUNCTIONS:
        raise BadInput(f"{path}: KIND is {module.KIND!r}; a method is {', '.join(FUNCTIONS)}")
    functions = _functions(module, path)
    options = _options(module, path)
    watched = keep_contracts(module, path, functions)
    fields = {function.name: getattr(watched, function.name) for function in functions}
    return Method(module.LABEL, module.KIND, **fields, **options)


def _functions(module, path: str) -> tuple[Contract, ...]:
    """The functions of a user's method. Raises BadInput for one that its kind lacks."""
    if module.KIND == "stated" and not hasattr(module, "train"):
        require(module, path, ("WEIGHTS",), "a stated method without a training of its own")
        return ()
    first, *others = FUNCTIONS[module.KIND]
    chosen = next((functions for functions in others if hasattr(module, functions[0].name)), first)
    require(module, path, [function.name for function in chosen], f"a {module.KIND} method")
    return chosen


def _are_splits(value) -> bool:
    return isinstance(value, tuple | list) and bool(value) and set(value) <= set(TRAINED_ON)


def _options(module, path: str) -> dict[str, Any]:
    """The OPTIONS that a user's method sets, by field. Raises BadInput for a wrong value."""
    options = {name: getattr(module, name) for name in OPTIONS if hasattr(module, name)}
    may_read = READS.get(module.KIND, ())
    checks = (  # option, whether its value is right, what is expected
        ("TRAINED_ON", _are_splits, f"some of {', '.join(TRAINED_ON)}"),
        (
            "READS",
            lambda value: not isinstance(value, str) and set(value) <= set(may_read),
            " or ".join(f'("{name}",)' for name in may_read) or "none",
        ),
        ("SETTINGS", lambda value: isinstance(value, dict), "a dict of the settings' defaults"),
        (
            "WEIGHTS",
            lambda value: value in ("sft", "dpo", None),
            "'sft', 'dpo' or None, the untrained model",
        ),
    )
    for name, is_right, expected in checks:
        if name in options and not is_right(options[name]):
            raise BadInput(f"{path}: {name} is {options[name]!r}; expected {expected}")
    fields = {}
    for name, value in options.items():
        fields[name.lower()] = tuple(value) if isinstance(value, list) else value
    return fields


# Hidden states in a file


def pack_state(state: Any) -> str:
    """A hidden state [size] as text: float16, little-endian, in base64."""
    numbers = np.clip(state, -LARGEST, LARGEST).astype(STORED)
    return base64.b64encode(numbers.tobytes()).decode()


def unpack_states(layers: list[str]) -> Any:
    """The states of an item at a position, [layers, size], in float32."""
    states = [np.frombuffer(base64.b64decode(layer), STORED) for layer in layers]
    return np.stack(states).astype(np.float32)
