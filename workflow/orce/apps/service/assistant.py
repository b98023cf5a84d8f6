"""An answer LLM and the judge of its answers, as one that answers and says how sure to be.

A single question is asked with the prompt of the task that the judge was trained on, and judged by the answer that the task
reads in the reply: the confidence then means what was measured on the test set. A longer conversation goes to the answer
LLM as it is, and its last question is judged with the whole reply.
"""

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from orce import tasks
from orce.artefacts import store
from orce.errors import BadInput
from orce.judging import judge
from orce.llm import adapters
from orce.llm.chat import Messages, prompt_ids
from orce.records import Example
from orce.stage_settings import Model, plain

MAX_TOKENS = 256  # of an answer where no task has a budget of its own


@dataclass(frozen=True)
class Reply:
    """answer: what the task reads in the text; None if it reads none, and that is judged too. The rest as in orce.score."""

    text: str
    answer: str | None
    confidence: float | None
    stated: float | None
    mean: float
    mass: float
    raw: Any
    retried: bool


@dataclass(frozen=True)
class Server:
    """key: the environment variable that holds its key."""

    server: str
    model: str
    key: str | None = None


class Assistant:
    """Answers conversations, one at a time; safe to call from several threads.

    engine: of orce.llm.engines. answering, judging: called before each is used, for weights that both share. task: how a
    single question is asked and its reply read; None: as given.
    """

    def __init__(
        self,
        engine,
        scorer: judge.Judge,
        task: str | None = None,
        answering: Callable[[], Any] = lambda: None,
        judging: Callable[[], Any] = lambda: None,
    ):
        self.engine, self.scorer, self.task = engine, scorer, None if task is None else tasks.get(task)
        self.answering, self.judging, self.lock = answering, judging, threading.Lock()

    def ask(self, question: str, choices: list[str] | None = None, context: str | None = None) -> Reply:
        """The greedy answer to one question, as `reply` gives it."""
        return self.reply([{"role": "user", "content": question}], choices=choices, context=context)[0]

    def reply(
        self,
        messages: Messages,
        n: int = 1,
        temperature: float = 0.0,
        max_tokens: int | None = None,
        seed: int = 0,
        top_p: float = 1.0,
        choices: list[str] | None = None,
        context: str | None = None,
        longest: int | None = None,
    ) -> list[Reply]:
        """n replies; temperature 0 is greedy. longest: of the prompt with its n answers, in tokens (default: no limit).

        Raises BadInput for a conversation that cannot be asked.
        """
        task = self.task if len(messages) == 1 else None
        example = tasks.asked(task or self.scorer.task, messages[-1]["content"], context, choices)
        asked = task.prompt(example) if task else messages
        budget = max_tokens or (task.MAX_TOKENS if task else MAX_TOKENS)
        with self.lock:
            self._check(asked, example, n * budget, longest)
            self.answering()
            (texts,) = self.engine.generate([asked], n, temperature, budget, [seed], top_p)
            answers = [task.extract(text, example) if task else text.strip() for text in texts]
            self.judging()
            records = [example | {"answer": answer or None} for answer in answers]
            scored = [one for record in records for one in self.scorer([record])]
        kept = [one.name for one in fields(Reply) if one.name != "text"]
        return [Reply(str(text), *(one[key] for key in kept)) for text, one in zip(texts, scored, strict=True)]

    def _check(self, asked: Messages, example: Example, answers: int, longest: int | None) -> None:
        """Raises BadInput for a question that cannot be judged, a text that is none, and more than `longest` tokens.

        Counted with the judge's tokenizer: a server's is not known.
        """
        for turn in asked:
            try:
                turn["content"].encode()
            except UnicodeEncodeError as error:
                raise BadInput(f"not a text: {error.reason} (character {error.start})") from None
        judged = self.scorer.prompt(example | {"answer": None})
        lm = self.scorer.reader.lm
        length = max(len(prompt_ids(lm.tokenizer, turns, lm.template_kwargs)) for turns in (asked, judged))
        if longest is not None and length + answers > longest:
            raise BadInput(f"takes {length} tokens and its answers up to {answers}; at most {longest} are computed")


def load(
    model: str,
    base: str | None = None,
    server: Server | None = None,
    task: str | None = None,
    device: str | None = None,
    readout: str = "stated",
) -> Assistant:
    """An Assistant with the judge in a folder (or hub id) `model`.

    Its answers come from the model under the judge, whose weights both share, or from `server`. base: the model that answers, if not the recorded one. task: asks and reads instead of the
    recorded one. Raises BadInput if there are no such weights.
    """
    folder = judge.located(model)
    task = task or recorded_task(folder)
    if server is not None:
        from orce.llm.engines import openai

        scorer = judge.load(str(folder), base, device, task=task, readout=readout, chunk=1)
        keys = {f"{server.server} {server.model}": {"key": server.key}}
        return Assistant(openai.load({"source": asdict(server), "rates": keys}), scorer, task)
    if adapters.is_adapter(folder):
        return _sharing(folder, judge.model_settings(folder, base, device), task, readout)
    recorded = judge.settings_of(folder).get("source")
    answering = judge.as_source(base) if base else judge.placed(folder, recorded) if recorded else None
    if answering is None:
        raise BadInput(
            f"{folder}: the model that answers is not known or not here; name it with --base, or use --server"
        )
    from orce.llm.engines import transformers

    engine = transformers.load(plain(judge.model_settings(folder, base, device)) | {"source": answering})
    return Assistant(engine, judge.load(str(folder), None, device, task=task, readout=readout), task)


def _sharing(folder: Path, settings: Model, task: str | None, readout: str) -> Assistant:
    """One model in memory, with the judge's adapter merged in when it judges."""
    from orce.llm import language_model
    from orce.llm.engines import transformers

    store.verified_folder(folder, partial=True)
    lm = language_model.load(settings)
    switcher = adapters.AdapterSwitcher(lm.model)
    scorer = judge.Judge(lm, task, readout, chunk=1)
    return Assistant(
        transformers.Engine(lm, 1),
        scorer,
        task,
        lambda: switcher.activate(None),
        lambda: switcher.activate(str(folder)),
    )


def recorded_task(folder: Path) -> str | None:
    """The task that a training step recorded, if it is one of this package or a file that is here."""
    manifest = folder / "manifest.json"
    found = store.read_manifest(manifest).get("settings", {}).get("task") if manifest.exists() else None
    return found if found is not None and tasks.known(found) else None
