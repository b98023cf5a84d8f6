"""Read hidden states at the ends of questions, answers and judges' prompts, for probes.

Three positions: `question`, the last token of the prompt that asked for the answer; `answer`, the
last token of the reply under that prompt (of an empty reply, the prompt's); `judge`, the last token
of the prompt that the untrained confidence LLM reads.
"""

from functools import partial
from typing import Annotated, Any, Self

from msgspec import UnsetType

from orce import stages, tasks
from orce.align.surrogate import read_surrogate
from orce.artefacts import store
from orce.artefacts.records import Example, Reply, Sample
from orce.config import picking
from orce.errors import BadInput
from orce.methods.method import DEPTHS, packed
from orce.runtime.process import say
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

    def load(fast):
        from orce.llm import language_model, reading

        say(f"[{settings.label}] loading the model")
        return reading.Encoder(
            language_model.load(settings.model), settings.depths, fast["batch_tokens"]
        )

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
        given = [judge_prompt(task, example, reply.answer) for _, example, reply in chunk]
        states = [{"judge": prompt} for prompt, _ in encoder.states(given, [""] * len(chunk))]
    else:
        given = [stages.answer_prompt(task, example, settings) for _, example, _ in chunk]
        read = encoder.states(given, [reply.raw for _, _, reply in chunk])
        states = [{"question": prompt, "answer": reply} for prompt, reply in read]
    records = []
    for (split, example, _), state in zip(chunk, states, strict=True):
        layers = {name: list(map(packed, every)) for name, every in state.items()}
        records.append({"id": example["id"], "split": split} | layers)
    return records


def read_replies(
    prompts: stages.Prompts, samples: str, surrogate: str
) -> list[tuple[str, Example, Reply]]:
    """(split, example, reply): of a test question the greedy reply, of another the first with its
    realised answer.
    """
    sampled = {record.key: record for record in store.records(samples, Sample)}
    realised = {row.key: row.answer or None for row in read_surrogate(surrogate)}
    chosen_replies = []
    for split, path in prompts.items():
        for example in stages.read_prompts(path):
            record = sampled.get((split, example["id"]))
            chosen = realised.get((split, example["id"]))
            given: list[Reply] = []
            if record and split != "test":
                given = [
                    Reply(*pair)
                    for pair in zip(record.answers, record.raw, strict=True)
                    if pair[0] == chosen
                ]
            elif record and not isinstance(record.greedy, UnsetType):
                given = [Reply(record.greedy.answer, record.greedy.raw)]
            if not given:
                raise BadInput(
                    f"{samples}: no answer for {split} id {example['id']!r}; sample it again"
                )
            chosen_replies.append((split, example, given[0]))
    return chosen_replies
