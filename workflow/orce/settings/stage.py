"""The settings of each stage: what it reads of the configuration, and so what runs it again. They
never hold input or output files.

orce.config.picking fills them from a configuration, `to_argument` makes the command-line argument
of them, and `parse_argument` reads it. A key that has a default here is left out of the argument
where it has that value. Numbers stay as they were written: 3 does not become 3.0, which would run
everything again.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from msgspec import UNSET, UnsetType

from orce.errors import BadInput
from orce.settings.schema import FromZero, Number, Optimisation, Trainer

PAPER_REWARD = "sc"  # the reward of the paper


class Part(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A mapping in the settings of a stage."""


class Source(Part, kw_only=True):
    """Where the weights of a model come from: {hub, revision}, {path} or {server, model}."""

    hub: str | UnsetType = UNSET
    revision: str | None | UnsetType = UNSET
    path: str | UnsetType = UNSET
    server: str | UnsetType = UNSET
    model: str | UnsetType = UNSET


class Encoder(Part, kw_only=True):
    source: Source
    dtype: str
    device: str


class Model(Encoder, kw_only=True):
    """What a model is loaded with. api: how its server is asked."""

    template_kwargs: dict[str, Any] | None | UnsetType = UNSET
    api: dict[str, Any] | UnsetType = UNSET


class Settings(Part, kw_only=True):
    """contents: {path: digest} of the local data, weights and modules that the settings name
    (orce.config.picking).
    """

    contents: dict[str, str] = {}


T = TypeVar("T", bound=msgspec.Struct)
# Raw mapping given to a user's train(), with the keys of TrainingJob.
TrainingSettings = Mapping[str, Any]


class TaskSettings(Settings, kw_only=True):
    task: str
    label: str  # of progress lines


class ModelSettings(TaskSettings, kw_only=True):
    model: Model


class AnswerSettings(ModelSettings, kw_only=True):
    """How the answer LLM is asked for an answer; reasoning: it thinks first."""

    shots: int | None
    reasoning: bool = False


class TrainStage(ModelSettings, kw_only=True):
    training: Trainer
    seed: int


class Schedule(Optimisation, kw_only=True):
    epochs: FromZero  # a warm start may have none


class TrainingJob(msgspec.Struct, kw_only=True):
    """Training settings, typed. stage: the optimisation of `sft`, of `dpo` or of a method's own."""

    model: Model
    training: Trainer
    stage: Schedule
    seed: int
    label: str = "training"
    method: str | None = None


class CellPicture(Part, kw_only=True):
    """A cell and its label; methods: [name, label] of each curve."""

    dataset: str
    model: str
    label: str
    methods: list[tuple[str, str]] = []

    def picture(self, kind: str) -> str:
        # no name of a data set or model has a _, so that no two cells share a picture
        return f"{kind}-{self.dataset}_{self.model}"


class Pictures(Settings, kw_only=True):
    cells: list[CellPicture]
    unparsed_confidence: Number


def to_mapping(settings: msgspec.Struct | Mapping[str, Any]) -> dict[str, Any]:
    return msgspec.to_builtins(settings)


def from_mapping(kind: type[T], settings: T | Mapping[str, Any]) -> T:
    """Settings as a struct; a mapping may have further keys, which are left out."""
    if isinstance(settings, kind):
        return settings
    given = cast(Mapping[str, Any], settings)
    known = {key: given[key] for key in kind.__struct_fields__ if key in given}
    return msgspec.convert(known, kind)


def parse_training_job(settings: TrainingSettings) -> TrainingJob:
    """Raises BadInput naming the key that is wrong."""
    try:
        return msgspec.convert(settings, TrainingJob)
    except msgspec.ValidationError as error:
        raise BadInput(f"the settings of a training: {_in_our_words(error)}") from None


def to_argument(settings: Settings | Mapping[str, Any]) -> str:
    """Settings as one command-line argument, in canonical form, so that equal settings rerun
    nothing. Snakemake's report has the arguments in a <script> of its page, which `</script>` in a
    label would end.
    """
    return json.dumps(to_mapping(settings), sort_keys=True, ensure_ascii=False).replace(
        "<", r"\u003c"
    )


def parse_argument(kind: type[T], text: str) -> T:
    """The --settings argument of a stage: a JSON object, or @FILE with one. Raises BadInput naming
    the key that is wrong.
    """
    origin = "--settings"
    if text.startswith("@"):
        origin = text[1:]
        text = Path(text[1:]).read_text()
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise BadInput(f"{origin}: {_in_our_words(error)}") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{origin}: not a JSON object ({error})") from None


def _in_our_words(error: msgspec.ValidationError) -> str:
    words = str(error).replace("`", "'").replace("Object missing required field", "no key")
    return words.replace("Object contains unknown field", "unknown key")
