"""Confidence for anyone's question-answer pairs, from a trained confidence LLM.

import orce
judge = orce.load_judge("results/arithmetic/smollm2/dpo")
list(judge([{"question": "What is 17 * 3?", "answer": "51"}]))
"""

import difflib
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

from orce import tasks
from orce.artefacts import files, store
from orce.errors import BadInput, public
from orce.llm.chat import STATEMENT_TOKENS, Messages, TemplateKwargs, prompt_ids
from orce.runtime import process
from orce.runtime.modules import typed
from orce.runtime.process import USUAL
from orce.settings.stage import Model, Source, from_mapping
from orce.tasks import choice, drop
from orce.text.marks import without_confidence

__all__ = ["Judge", "load_judge"]
Readout = Literal["stated", "mean", "mode"]
READOUTS = get_args(Readout)
# the files of a hub model that are fetched beside its weights
BESIDE_WEIGHTS = ["*.json", "*.jinja", "*.model", "*.txt"]


class AsGiven:
    """How a record of no particular task is shown: as the task with such records shows it.

    With choices like MMLU, LogiQA and ReClor, with a passage like DROP, else the question alone.
    """

    @staticmethod
    def question(record: Any) -> str:
        if record["choices"]:
            return choice.question(record)
        return drop.question(record) if record["context"] else record["question"]

    @staticmethod
    def display(answer: str | None, record: Any) -> str:
        if answer is None:
            return "(no answer)"
        if not record["choices"]:
            return without_confidence(answer).strip()
        letter: str | None = answer
        if answer not in list(choice.letters(record["choices"])):
            letter = choice.chosen(answer, record)
        return answer if letter is None else choice.display(letter, record)


class Judge:
    """States confidences for question-answer records. Made by `load_judge`, which documents the
    options.

    readout: what `confidence` is, one of READOUTS. chunk: records in memory. longest: tokens that
    the model reads, if it has a limit.
    """

    def __init__(self, lm, task: str | None, readout: str, batch_tokens: int, chunk: int):
        from orce.judge.reader import reader_of
        from orce.llm.trie import sliding_window

        if readout not in READOUTS:
            raise BadInput(f"readout is {readout!r}; expected {', '.join(READOUTS)}")
        self.task: Any = AsGiven if task is None else tasks.get(task)
        self.readout = readout
        self.chunk = chunk
        self.reader = reader_of(lm, batch_tokens)
        config = lm.model.config
        limits = (getattr(config, "max_position_embeddings", None), sliding_window(config))
        self.longest = min(filter(None, limits), default=None)

    def __call__(self, records: Iterable[dict]) -> Iterator[dict]:
        """The records with their confidences, in order, a chunk at a time: `records` may be
        endless.

        A record has question (text) and answer (text, or None for no answer; or a record of given
        samples, see `with_answer`), and may have context (text), choices (texts) and other keys,
        which are kept. It gains stated, the stated confidence, mean, of the distribution over 0 to
        100 percent, and, where it is the readout, mode, its most probable value, all in [0, 1];
        confidence, one of these by the readout; mass, the probability of stating one of the 101
        values at all; raw and retried, the model's reply (a second, constrained statement if the
        first could not be parsed). Raises BadInput naming the first record that is not of this form.
        """
        numbered = enumerate(map(with_answer, records), 1)
        while chunk := list(itertools.islice(numbered, self.chunk)):
            prompts = []
            for number, record in chunk:
                try:
                    prompts.append(self.prompt(record))
                except BadInput as error:
                    raise BadInput(f"record {number}: {error}") from None
            yield from self._score([record for _, record in chunk], prompts)

    def _score(self, records: list[dict], prompts: list[Messages]) -> Iterator[dict]:
        stating = 0
        for record in records:
            if self.task is AsGiven and not record.get("choices"):
                answer = record["answer"] or ""
                stating += without_confidence(answer) != answer
        what = "had an answer that states its own confidence, which is taken off"
        process.tally(what, stating, len(records))
        statements = self.reader.state(prompts, mode=self.readout == "mode")
        for record, stated in zip(records, statements, strict=True):
            yield record | {"confidence": getattr(stated, self.readout)} | stated.to_json()

    def prompt(self, record: dict) -> Messages:
        """The confidence LLM's prompt for a record. Raises BadInput if the record is not of the
        expected form.
        """
        check_record(record)
        try:
            shown: Any = {"context": None, "choices": None} | record
            messages = tasks.judge_prompt(self.task, shown, record["answer"])
            messages[0]["content"].encode()
        except (KeyError, TypeError, IndexError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise BadInput(f"the task cannot show this record ({reason})") from None
        except UnicodeEncodeError as error:
            raise BadInput(f"not a text: {error}") from None
        lm = self.reader.lm
        ids = prompt_ids(lm.tokenizer, messages, lm.template_kwargs)
        length = len(ids) + STATEMENT_TOKENS
        if self.longest is not None and length > self.longest:
            raise BadInput(f"takes {length} tokens; the model reads at most {self.longest}")
        return messages


def with_answer(record: dict) -> dict:
    """A record of given samples (orce.given.records) with the `answer` to judge: the greedy one,
    else the first sample.
    """
    if not isinstance(record, dict) or "answer" in record:
        return record
    greedy = record.get("greedy")
    if isinstance(greedy, dict):
        return record | {"answer": greedy.get("answer")}
    if greedy is not None:
        return record | {"answer": greedy}
    answers = record.get("answers")
    return record | {"answer": answers[0]} if isinstance(answers, list) and answers else record


def check_record(record: dict) -> None:
    """Raises BadInput if a record is not of the form that Judge reads."""
    if not isinstance(record, dict):
        found = type(record).__name__
        raise BadInput(f"expected an object with question and answer, found {found}")
    for key in ("question", "answer"):
        if key not in record:
            raise BadInput(f"no key {key!r}; needed keys are question, answer")
    question = record["question"]
    if not isinstance(question, str) or not question.strip():
        raise BadInput(f"'question' is {question!r}; expected a text that is not empty")
    for key in ("answer", "context"):
        if not isinstance(record.get(key), str | None):
            raise BadInput(f"{key!r} is {record[key]!r}; expected a text, or null for none")
    choices = record.get("choices")
    texts = isinstance(choices, list) and all(isinstance(text, str) for text in choices)
    if choices is not None and not (texts and 2 <= len(choices) <= 26):
        raise BadInput(
            f"'choices' is {choices!r}; expected a list of 2 to 26 texts, or null for none"
        )


# Which weights


@typed
def load_judge(
    model: str | Path | None = None,
    base: str | None = None,
    device: str | None = None,
    dtype: Literal["float32", "bfloat16", "float16"] | None = None,
    template_kwargs: TemplateKwargs = None,
    task: str | None = None,
    readout: Readout = "stated",
    batch_tokens: int = USUAL["batch_tokens"],
    chunk: int = 512,
) -> Judge:
    """A Judge that asks a confidence LLM. Raises BadInput if there are no such weights.

    model: folder of a confidence LLM, or its id on the hub (ID or ID@REVISION). base: the model
    under an adapter, if not the recorded one; alone: an untrained model. device: cpu, cuda (all
    visible GPUs), cuda:1, ..., by default one GPU if any. dtype: by default as in training. task:
    shows records as this task does, by default by what they hold. readout: what `confidence` is.
    batch_tokens: of prompts computed together. chunk: records in memory.
    """
    from orce.llm import language_model

    folder = None if model is None else local_folder(str(model))
    if folder is not None:
        store.verify_folder(folder, partial=True)
    elif base is None:
        raise BadInput(
            "no model; name the folder or hub id of a confidence LLM, or a base model to ask untrained"
        )
    settings = model_settings(folder, base, device, dtype, template_kwargs)
    lm = language_model.load(settings, None if folder is None else str(folder))
    return Judge(lm, task, readout, batch_tokens, chunk)


def model_settings(
    folder: Path | None,
    base: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    template_kwargs: TemplateKwargs = None,
) -> Model:
    """What the weights under a judge's folder are loaded with: what its training recorded, but for
    the arguments.
    """
    from orce.llm import language_model

    recorded: dict[str, Any] = {}
    if folder is not None and (folder / "manifest.json").exists():
        facts = store.read_manifest(folder / "manifest.json")
        recorded = facts.get("settings", {}).get("model", {})
    device = language_model.device_or_free(device)
    if base or folder is None:
        source = as_source(str(base))
    else:
        source = _source_below(folder, recorded.get("source"))
    if template_kwargs is None:
        template_kwargs = recorded.get("template_kwargs")
    return Model(
        source=from_mapping(Source, source),
        device=device,
        dtype=dtype or recorded.get("dtype") or ("float32" if device == "cpu" else "bfloat16"),
        template_kwargs=template_kwargs,
    )


def check_weights(folder: Path, device: str | None = None) -> None:
    """Raises BadInput, before anything is computed, if the weights in a judge's folder, or those
    below them, are not whole.
    """
    from orce.llm import language_model

    language_model.check_weights(model_settings(folder, device=device).source, str(folder))


def as_source(name: str) -> dict[str, Any]:
    """A model as named on the command line, as a source of weights: {path}, or {hub, revision}."""
    hub, _, revision = name.partition("@")
    if Path(name).is_dir():
        return {"path": name}
    if hub.count("/") != 1:
        raise BadInput(
            f"{public(name)}: no such folder, and not a model of the hub, OWNER/NAME or OWNER/NAME@REVISION"
            f"{_near(name)}"
        )
    return {"hub": hub, "revision": revision or None}


def _near(name: str) -> str:
    """The end of a message about a folder that is not there: one beside it with a name like its own,
    or what makes the demo's.
    """
    path = Path(name)
    folders = [other.name for other in path.parent.glob("*") if other.is_dir()]
    if close := difflib.get_close_matches(path.name, folders, 1):
        return f"; did you mean {path.parent / close[0]}?"
    if path.parts[:2] == ("results", "models"):
        made = path / "manifest.json"
        return f"; a run makes it, the demo's: snakemake --cores 1 --configfile config/demo.yaml -- {made}"
    return ""


def local_folder(model: str) -> Path:
    """The local folder of a model, fetched from the hub if it is not one already."""
    source = as_source(model)
    if "path" in source:
        return Path(model)
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return fetch_snapshot(source["hub"], source["revision"])
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(
            f"{model}: no such folder, and it cannot be fetched from the hub ({reason})"
        ) from None


def fetch_snapshot(hub: str, revision: str | None = None) -> Path:
    """The folder of a hub model in the cache, fetched with the weights that its index names.
    Another copy of these, in a folder (original/) or of another program (consolidated*), would
    double the download.
    """
    from huggingface_hub import snapshot_download

    options: dict[str, Any] = {"revision": revision, "ignore_patterns": ["*/*", "consolidated*"]}
    folder = Path(snapshot_download(hub, allow_patterns=BESIDE_WEIGHTS, **options))
    weights = {"*model.safetensors"}
    index = folder / "model.safetensors.index.json"
    if index.exists():
        weights = {*json.loads(index.read_text())["weight_map"].values()}
    return Path(snapshot_download(hub, allow_patterns=[*weights], **options))


def _source_below(folder: Path, recorded: dict[str, Any] | None) -> dict[str, Any]:
    """Source of the base model under an adapter, the recorded one if it is here; the folder itself,
    for a whole model.
    """
    described = folder / "adapter_config.json"
    if not described.exists():
        return {"path": str(folder)}
    adapter = files.read_json(described)
    name = adapter.get("base_model_name_or_path")
    if not recorded and not (isinstance(name, str) and name):
        raise BadInput(
            f"{described}: base_model_name_or_path is {json.dumps(name)}, so it does not say which model the adapter is "
            "for; write its folder or hub id there, or name it in Python: orce.load_judge(FOLDER, base=MODEL)"
        )
    source = recorded or {"path": name}
    if "hub" in source:
        return source
    # A relative path starts where the workflow ran, which is above its results.
    for root in (*folder.resolve().parents, Path()):
        path = root / source["path"]
        if path.is_dir():
            return {"path": str(path)}
    if not recorded and str(name).count("/") <= 1:
        return {"hub": name, "revision": adapter.get("revision")}
    raise BadInput(
        f"{folder}: its base model {source['path']!r} is not here; put it at that path, or name it in Python: "
        "orce.load_judge(FOLDER, base=MODEL)"
    )
