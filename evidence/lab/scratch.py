"""A small answer model, trained from scratch: a LlamaForCausalLM with its tokenizer, in the hub's format.

It learns a generated task (evidence.lab.graded) from that task's `pretrain` split, and from a few conversations the form
of the confidence LLM's statement with numbers that mean nothing, as an instruction-tuned model knows the form. A
hundred thousand weights are enough: the whole pipeline then takes seconds a cell, and as many answer models as an
experiment needs can be made.

Its tokenizer has a token for each character and one for each fixed part of the confidence LLM's prompt, so that a
prompt has some thirty tokens. `numbers` says how a stated confidence is written: `values`, one token for each of 0 to
100 (as Llama-3 has), or `digits`, one for each digit (as Qwen, Mistral and SmolLM2 have).
"""

import random
import string
import time
from pathlib import Path
from typing import Any, cast

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from orce.answers import realised
from orce.artefacts import files, store
from orce.llm.chat import completion_ids, prompt_ids, statement
from orce.records import Example
from orce.runtime.progress import Progress

PAD, END, USER, ASSISTANT = "<pad>", "<end>", "<user>", "<assistant>"
TEMPLATE = (
    "{% for message in messages %}{{ '<user>' if message['role'] == 'user' else '<assistant>' }}{{ message['content'] }}<end>"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
CHARACTERS = string.ascii_letters + string.digits + string.punctuation + " \n"
WINDOW = 128  # tokens
STATEMENTS = 0.1  # share of the conversations that show the form of a statement
MARK = "\x00"
SIZE = {"width": 64, "layers": 2, "batch_size": 96, "learning_rate": 3e-3}
TRAINED = {"sums": SIZE | {"steps": 400}, "counts": SIZE | {"steps": 600}, "lookups": SIZE | {"steps": 600}}


def tokenizer(numbers: str) -> PreTrainedTokenizerFast:
    """The tokenizer, for `numbers` values or digits."""
    parts = [part for part in _confidence_prompt(MARK, MARK).split(MARK) if part]
    form = statement(0).removesuffix("0")  # "Confidence: "
    whole = [f"{form.rstrip()}", *(f" {value}" for value in range(101))] if numbers == "values" else [form]
    vocabulary = {token: i for i, token in enumerate([PAD, END, USER, ASSISTANT, *CHARACTERS])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token=PAD))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    made.decoder = decoders.Fuse()
    made.add_tokens([AddedToken(text, normalized=False) for text in [*parts, *whole]])
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[USER, ASSISTANT],
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=WINDOW,
        padding_side="right",
    )


def _confidence_prompt(question: str, answer: str) -> str:
    class Plain:
        @staticmethod
        def question(example: dict) -> str:
            return example["question"]

        @staticmethod
        def display(answer: str | None, example: dict) -> str:
            return str(answer)

    plain, example = cast(Any, Plain), cast(Example, {"question": question})
    return realised.messages(plain, example, answer)[0]["content"]


def make(model: str, task, out: str | Path) -> None:
    """Train the model of a name such as sums-values-0 (questions, numbers, seed) on a task, in the new folder `out`."""
    group, numbers, seed = model.split("-")
    settings = TRAINED[group] | {"numbers": numbers, "seed": int(seed), "label": f"scratch {model}"}
    with files.new_folder(out) as work:
        facts = train(task, settings, work)
        store.write_manifest(work / "manifest.json", facts | store.folder_digests(work))


def train(task, settings: dict, folder: Path) -> dict:
    """Train a model and save it with its tokenizer in `folder`; returns {parameters, loss, seconds}.

    task: a module with a split `pretrain` and `taught`. settings: numbers, width, layers, steps, batch_size,
    learning_rate, seed and label.
    """
    started = time.monotonic()
    torch.manual_seed(settings["seed"])
    rng = random.Random(settings["seed"])
    tokens = tokenizer(settings["numbers"])
    examples = task.load({}, "pretrain")
    model = LlamaForCausalLM(_config(tokens, settings))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=settings["learning_rate"], betas=(0.9, 0.98), weight_decay=0.01
    )
    steps = settings["steps"]
    warm = max(1, steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, max(0.02, (steps - step) / (steps - warm + 1)))
    )
    progress, loss = Progress(settings["label"], steps), torch.tensor(0.0)
    talks = Conversations(task, tokens, examples, rng)
    pad: Any = tokens.pad_token_id
    for step in range(steps):
        batch = [talks.draw() for _ in range(settings["batch_size"])]
        optimizer.zero_grad(set_to_none=True)
        loss = model(**_padded(batch, pad)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        progress.update(step + 1, f"loss {loss.item():.3f}")
    model.save_pretrained(folder)
    tokens.save_pretrained(folder)
    count = sum(weights.numel() for weights in model.parameters())
    return {"parameters": count, "loss": loss.item(), "seconds": round(time.monotonic() - started, 1)}


def _config(tokens, settings: dict) -> LlamaConfig:
    width = settings["width"]
    return LlamaConfig(
        vocab_size=len(tokens),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=settings["layers"],
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=WINDOW,
        pad_token_id=tokens.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokens.eos_token_id,
        tie_word_embeddings=True,
    )


class Conversations:
    """Draws conversations (prompt, reply) as token ids; each text is tokenized once."""

    def __init__(self, task, tokens, examples: list[dict], rng: random.Random):
        self.task, self.tokens, self.examples, self.rng = task, tokens, examples, rng
        self.prompts: dict[tuple, list[int]] = {}
        self.replies: dict[str, list[int]] = {}

    def draw(self) -> tuple[list[int], list[int]]:
        """A question with its answer, or the form of a statement: any number, about a right or another answer."""
        example, proposed = self.rng.choice(self.examples), None
        if self.rng.random() < STATEMENTS:
            proposed = self.rng.choice((example, self.rng.choice(self.examples)))["reference"]
            return self._prompt(example, proposed), self._reply(statement(self.rng.randint(0, 100)))
        return self._prompt(example, None), self._reply(self.task.taught(example, self.rng))

    def _prompt(self, example: dict, proposed: str | None) -> list[int]:
        key = example["id"], proposed
        if key not in self.prompts:
            asked = (
                self.task.prompt(example)
                if proposed is None
                else realised.messages(self.task, cast(Example, example), proposed)
            )
            self.prompts[key] = prompt_ids(self.tokens, asked)
        return self.prompts[key]

    def _reply(self, text: str) -> list[int]:
        if text not in self.replies:
            self.replies[text] = completion_ids(self.tokens, text)
        return self.replies[text]


def _padded(batch: list[tuple[list[int], list[int]]], pad: int) -> dict[str, torch.Tensor]:
    longest = max(len(prompt) + len(reply) for prompt, reply in batch)
    rows, labels = [], []
    for prompt, reply in batch:
        rest = longest - len(prompt) - len(reply)
        rows.append(prompt + reply + [pad] * rest)
        labels.append([-100] * len(prompt) + reply + [-100] * rest)
    ids = torch.tensor(rows)
    return {"input_ids": ids, "attention_mask": (ids != pad).long(), "labels": torch.tensor(labels)}
