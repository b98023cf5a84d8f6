"""The front door: how sure a model is of its answers, without a configuration and without Snakemake."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orce.apps.door import measured
from orce.apps.door.measured_table import Table
from orce.apps.door.questions import Questions
from orce.runtime.process import USUAL

__all__ = ["Table", "confidence"]


def confidence(
    model: str | Path | None,
    questions: Questions,
    methods: Sequence[str] | None = None,
    answers: Sequence[Any] | None = None,
    labels: Sequence[Any] | None = None,
    *,
    fields: Mapping[str, str | list[str]] | None = None,
    server_model: str | None = None,
    judge: str | Path | None = None,
    folder: str | Path | None = None,
    settings: Mapping[str, dict[str, Any]] | None = None,
    task: str | None = None,
    samples: int = 10,
    temperature: float = 0.7,
    top_p: float = 1.0,
    max_tokens: int | None = None,
    shots: int | None = None,
    seed: int = 42,
    engine: str = "transformers",
    device: str | None = None,
    dtype: str | None = None,
    template_kwargs: dict[str, Any] | None = None,
    chunk: int = measured.CHUNK,
    batch_tokens: int = USUAL["batch_tokens"],
) -> Table:
    """How sure `model` is of its answers to `questions`, by each of `methods`.

    model: a folder or hub id (ID or ID@REVISION), or the address of an OpenAI-compatible server with its `server_model`; None
    where the methods read given answers alone.
    questions: texts, mappings with `question`, or the path of a file (.jsonl, .csv, ...). A mapping may have id, context,
    choices, reference (an accepted answer, or a list), and answer or answers, which are given then. fields: the columns that these
    stand in, {"question": "doc.question", "answers": "resps.0"}, with dots into nested JSON; other columns are then not read.
    methods: names, or paths of Python files with a method of your own (default: likelihood and agreement; agreement alone on
    a server). answers, labels: one a question, in place of the ones in the mappings; without answers the model is sampled, K =
    `samples` times and once greedily. judge: the folder of a trained confidence LLM, which becomes the row `judge`.
    settings: of methods, {"topk": {"k": 2}}. folder: keeps what is finished, so that the same call goes on where a killed
    one stopped. task: how questions are shown and answers read (default: qa, or choice where there are choices). The other
    arguments are the keys of that name in the configuration, with the same defaults.

    The workflow's own steps compute it: with equal ids, settings, chunk and batch_tokens the numbers equal its rows.
    Raises BadInput, in one line, for what cannot be done.
    """
    how = {
        "samples": samples,
        "temperature": temperature,
        "top_p": top_p,
        "max_tokens": max_tokens,
        "shots": shots,
        "seed": seed,
        "engine": engine,
        "device": device,
        "dtype": dtype,
        "template_kwargs": template_kwargs,
    }
    fast = {"chunk": chunk, "batch_tokens": batch_tokens}
    asked = measured.Asked(
        str(model or ""),
        server_model,
        None if judge is None else str(judge),
        task,
        methods,
        settings,
        how,
    )
    return measured.table(asked, questions, fields, answers, labels, folder, fast)
