"""Read hidden states at the ends of questions, answers and judges' prompts, for probes.

Three positions: `question`, the last token of the prompt that asked for the answer; `answer`, the
last token of the reply under that prompt (of an empty reply, the prompt's); `judge`, the last token
of the prompt that the untrained confidence LLM reads.
"""

from functools import partial
from typing import Annotated, Any, Self

from msgspec import UNSET

from orce import stages, tasks
from orce.align.surrogate import read_surrogate
from orce.artefacts import store
from orce.artefacts.records import Example, Reply, Sample
from orce.config import picking
from orce.errors import BadInput
from orce.methods.method import DEPTHS, pack_state
from orce.runtime.process import say, speed
from orce.settings.schema import Config, Number
from orce.settings.stage import AnswerSettings
from orce.tasks import judge_prompt


class StatesSettings(AnswerSettings, kw_only=True):
    """model_read: answers (the answer LLM) or judge. depths: of the layers whose states are kept,
    as shares of the model's.
    """

    model_read: str
    depths: list[Number]

    @classmethod
    def of(cls, config: Config, dataset: str, model: str, model_read: str) -> Self:
        more: dict[str, Any] = {"model_read": model_read, "depths": list(DEPTHS)}
        if model_read == "judge":
            more |= {"loads": picking.judge_base(config, model), "shots": None, "reasoning": False}
        label = "states of the judge" if model_read == "judge" else "states"
        return picking.pick(cls, config, label, dataset, model, **more)


def run(
    settings: StatesSettings,
    prompts: stages.Prompts,
    samples: Annotated[str, "with the answers"],
    surrogate: Annotated[str, "with the realised answers of the training splits"],
    out: str,
    shard: stages.Shard = "0/1",
):
    """Reads prompts, samples and realised answers; writes the hidden states of some layers at the
    ends of question, answer or judge's prompt, which probes are fitted on.
    """
    items = read_replies(prompts, samples, surrogate)

    def load():
        from orce.llm import language_model, reading

        say(f"[{settings.label}] loading the model")
        lm = language_model.load(settings.model)
        return reading.Encoder(lm, settings.depths, speed("confidence")["batch_tokens"])

    work = partial(encode_chunk, settings=settings)
    stages.write_in_chunks(settings, items, out, load, work, kind="confidence", shard=shard)


def encode_chunk(
    chunk: list[tuple[str, Example, Reply]], encoder, settings: StatesSettings
) -> list[dict]:
    """Records {id, split, and of each position [base64 of a layer's state, in float16, for each
    depth]}.
    """
    task = tasks.get(settings.task)
    if settings.model_read == "judge":
        positions = ("judge",)
        prompts = [judge_prompt(task, example, reply.answer) for _, example, reply in chunk]
        replies = [""] * len(chunk)
    else:
        positions = ("question", "answer")
        prompts = [stages.answer_prompt(task, example, settings) for _, example, _ in chunk]
        replies = [reply.raw for _, _, reply in chunk]
    read = encoder.states(prompts, replies)
    records = []
    for (split, example, _), states in zip(chunk, read, strict=True):
        record: dict[str, Any] = {"id": example["id"], "split": split}
        # at the end of the prompt and, after it, at the end of the reply
        for position, layers in zip(positions, states, strict=False):
            record[position] = [pack_state(layer) for layer in layers]
        records.append(record)
    return records


def read_replies(
    prompts: stages.Prompts, samples: str, surrogate: str
) -> list[tuple[str, Example, Reply]]:
    """(split, example, reply): of a test question the greedy reply, of another the first with its
    realised answer.
    """
    sampled = {record.key: record for record in store.records(samples, Sample)}
    realised = {row.key: row.answer or None for row in read_surrogate(surrogate)}
    items = []
    for key, example in stages.read_by_split(prompts).items():
        split, name = key
        reply = choose_reply(sampled[key], realised.get(key)) if key in sampled else None
        if reply is None:
            raise BadInput(f"{samples}: no answer for {split} id {name!r}; sample it again")
        items.append((split, example, reply))
    return items


def choose_reply(record: Sample, realised: str | None) -> Reply | None:
    if record.split == "test":
        greedy = record.greedy
        return None if greedy is UNSET else Reply(greedy.answer, greedy.raw)
    for answer, raw in zip(record.answers, record.raw, strict=True):
        if answer == realised:
            return Reply(answer, raw)
    return None
