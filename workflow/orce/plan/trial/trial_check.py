"""The check of a machine: every kind of stage runs, and gives the CPU's numbers."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

import orce
from orce import tasks
from orce.artefacts import files
from orce.config import settings
from orce.config.schema import Config
from orce.llm import engines
from orce.llm.chat import statement, to_percent
from orce.llm.language_model import vocabulary
from orce.plan.cost import flops
from orce.plan.trial import models, sharded, speeds
from orce.plan.trial.apart import Ended, apart
from orce.plan.trial.card import Card, against_plan
from orce.plan.trial.report import Report, Result, Shape, machine
from orce.records import Pair, Taught
from orce.runtime import lease
from orce.runtime.progress import say
from orce.runtime.speed import VARIABLE
from orce.stage_settings import Model, TrainingSettings, plain, typed
from orce.training import dpo, sft, tokenized_brier

EXAMPLES, BATCH = 24, 8  # three steps of each training
FEW, SMALL_BATCH = 4, 2  # where the device is a CPU, which is compared with itself: two steps
# How far the device may be from the CPU in float32: relative difference of a training's losses, mean difference of
# confidences, share of greedy answers that differ. bfloat16 keeps three digits.
LIMITS = {"float32": (1e-3, 1e-3, 0.05), "bfloat16": (0.05, 0.03, 0.4), "float16": (0.05, 0.03, 0.4)}
LORA_RANKS = (8, 16, 32, 64, 128, 256, 512)  # that vllm makes room for
SHARDED = "SFT on two, FSDP2"
STUCK = 180  # seconds after which two processes are taken to wait for each other


class Check:
    """Runs the checks with the settings of a configuration and collects their results.

    small: folder of the model whose numbers are compared. engines: those that generate. card: the GPU, None on a CPU.
    pair: CUDA_VISIBLE_DEVICES of two processes that share the weights, "" of two on the CPU; None without a check of that.
    """

    def __init__(
        self,
        config: Config,
        small: str,
        work: Path,
        engines: list[str],
        card: Card | None = None,
        pair: str | None = None,
    ):
        self.config, self.small, self.work, self.engines = config, small, work, engines
        self.card, self.pair = card, pair
        self.results: list[Result] = []
        self.speeds: dict[str, float] = {}
        self.starts: dict[str, dict[str, Any]] = {}  # of each engine
        self.limits = LIMITS[config.dtype]
        self.tokenizer, _ = vocabulary({"path": small})
        self.batch = BATCH if card else SMALL_BATCH
        self.questions = models.questions(EXAMPLES if card else FEW, 0, self.tokenizer)
        self.pairs = models.pairs(self.questions)
        os.environ[VARIABLE] = settings.to_argument(settings.speed(config))

    def model(self, on_cpu: bool = False, folder: str | None = None) -> dict[str, Any]:
        """Settings of the small model on this device, or on the CPU in float32; or of another folder's."""
        device, dtype = ("cpu", "float32") if on_cpu else (self.config.device, self.config.dtype)
        return {"source": {"path": folder or self.small}, "device": device, "dtype": dtype, "template_kwargs": {}}

    def attempt(self, name: str, work: Callable[[], object]) -> None:
        """Run a check in a process of its own, so that no check finds another's memory; a failure is its result."""
        say(f"[gpu-check] {name}")
        started = time.monotonic()

        def alone() -> tuple[list[Result], dict[str, float], dict[str, dict[str, Any]]]:
            self.results, self.speeds, self.starts = [], {}, {}
            work()
            return self.results, self.speeds, self.starts

        try:
            results, rates, starts = apart(alone)
            self.results += results
            self.speeds |= rates
            self.starts |= starts
        except Ended as error:
            self.results.append(Result(name, False, note=str(error)))
        self.speeds[f"{name}, seconds"] = round(time.monotonic() - started, 1)

    def below(self, name: str, value: float, limit: float, note: str = "") -> None:
        self.results.append(Result(name, bool(value <= limit), round(value, 6), limit, note))

    # ---- the same numbers as on the CPU

    def numbers(self) -> None:
        """Trainings, readings and greedy answers of the small model, here and on the CPU."""
        for stage in ("sft", "conftuner", "dpo"):
            self.attempt(stage, lambda stage=stage: self._training(stage))
        if self.pair is None:
            self.results.append(Result(SHARDED, True, note="needs two GPUs; not checked"))
        else:
            self.attempt(SHARDED, self.sharded)
        self.attempt("kill and resume", self._resuming)
        self.attempt("reading", self._reading)
        for engine in self.engines:
            self.attempt(f"sampling, {engine}", lambda engine=engine: self.sampling(engine))
        if "vllm" in self.engines and self.config.training.method == "lora":
            self.attempt("LoRA, vllm", self.adapter)

    def _training(self, stage: str) -> None:
        found = [self.losses(stage, on_cpu) for on_cpu in (True, False)]
        self.below(stage, furthest(*found), self.limits[0], f"losses {found[1]}, on the CPU {found[0]}")

    def losses(self, stage: str, on_cpu: bool) -> list[float]:
        """The loss of each step; the weights are left in the folder `stage` or `stage-cpu`."""
        options, out = self._options(stage, on_cpu), self.weights(stage, on_cpu)
        if stage == "sft":
            self._warm_start(options, out)
        elif stage == "conftuner":
            tokenized_brier.train([{"prompt": one.prompt, "correct": one.correct} for one in self.pairs], options, out)
        else:
            chosen = [(90, 10) if one.correct else (10, 90) for one in self.pairs]
            pairs = [
                Pair(
                    id=one.id,
                    prompt=one.prompt,
                    chosen=[{"content": statement(a)}],
                    rejected=[{"content": statement(b)}],
                )
                for one, (a, b) in zip(self.pairs, chosen, strict=True)
            ]
            dpo.train(pairs, options, self.weights("sft", True), self.weights("sft", True), out)
        return losses(out)

    def _options(self, stage: str, on_cpu: bool) -> TrainingSettings:
        return {
            "label": stage,
            "model": self.model(on_cpu),
            "training": plain(settings.trainer(self.config.training)),
            "stage": self._stage(stage),
            "method": stage,
            "seed": 0,
        }

    def _warm_start(self, options: TrainingSettings, out: Path) -> None:
        sft.train(self._examples(), options, out)

    def _examples(self) -> list[Taught]:
        return [{"prompt": one.prompt, "percent": to_percent(one.kappa)} for one in self.pairs]

    def sharded(self) -> None:
        """SFT of two processes that share the weights (FSDP2), against the one of a single process."""
        options, task, out = self._options("sft", False), self.work / "sharded.json", self.work / "sharded" / "sft"
        options["training"]["shard"] = True
        task.write_text(json.dumps({"examples": self._examples(), "settings": options}))
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", sharded.__name__]
        library = os.pathsep.join(filter(None, [str(Path(orce.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
        environment = os.environ | {lease.SELECTOR: str(self.pair), "PYTHONPATH": library}
        with subprocess.Popen([sys.executable, *launch, str(task), str(out)], env=environment) as process:
            try:
                code = process.wait(timeout=STUCK)
            except subprocess.TimeoutExpired:
                process.terminate()  # torchrun ends its processes
                raise RuntimeError(
                    f"two processes did not end within {STUCK} s: can these GPUs talk to each other?"
                ) from None
        if code:
            raise RuntimeError(f"torchrun ended with exit code {code}; its last lines above say why")
        alone, two = losses(self.weights("sft", False)), losses(out)
        self.below(SHARDED, furthest(alone, two), self.limits[0], f"losses {two}, of one process {alone}")

    def _resuming(self) -> None:
        """SFT, killed after its first checkpoint and started again, against the one that ran through."""
        options, out = self._options("sft", False), self.work / "killed" / "sft"
        options["training"]["save_steps"] = 1

        def ended() -> None:
            threading.Thread(target=end_at_checkpoint, args=(out,), daemon=True).start()
            self._warm_start(options, out)

        with contextlib.suppress(Ended):
            apart(ended)
            raise RuntimeError("the training ended before it could be killed")
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self._warm_start(options, out)
        sys.stderr.write(said.getvalue())
        if "resuming from" not in said.getvalue():
            raise RuntimeError("the second training began anew")
        through, again = losses(self.weights("sft", False)), losses(out)
        self.below("kill and resume", furthest(through, again), self.limits[0], f"losses {again}, in one go {through}")

    def _stage(self, stage: str) -> dict[str, Any]:
        options: Any = self.config.methods["conftuner"] if stage == "conftuner" else plain(getattr(self.config, stage))
        return (
            plain(self.config.sft)
            | {"beta": 0.1, "format_weight": 1.0}
            | options
            | {"epochs": 1, "batch_size": self.batch}
        )

    def weights(self, stage: str, on_cpu: bool) -> Path:
        return self.work / (f"{stage}-cpu" if on_cpu else stage)

    def _reading(self) -> None:
        from orce.judging.reader import SwitchingReader

        prompts, weights, means = [one.prompt for one in self.pairs], str(self.weights("sft", True)), []
        for on_cpu in (True, False):
            reader = SwitchingReader(self.model(on_cpu), self.config.engine.batch_tokens)
            means.append([reading.mean for reading in reader.read(prompts, adapter=weights)])
            reader.close()
        apart = sum(abs(there - here) for there, here in zip(*means, strict=True)) / len(prompts)
        self.below("reading", apart, self.limits[1], "mean difference of the mean confidences")

    def sampling(self, engine: str) -> None:
        task, texts = tasks.get(models.TASK), []
        prompts = [task.prompt(one) for one in self.questions]
        for one, on_cpu in (("transformers", True), (engine, False)):
            model = self.model(on_cpu) | plain(self.config.engine) | {"name": one}
            started = time.monotonic()
            running = engines.get(one).load(model, engines.longest(model, prompts, task.MAX_TOKENS))
            if not on_cpu:
                self.starts[engine] = {"start_seconds": round(time.monotonic() - started, 1)} | runner(running)
            texts.append(running.generate(prompts, 1, 0.0, task.MAX_TOKENS, range(len(prompts))))
            if not on_cpu:
                self._repeated(engine, running, prompts, task.MAX_TOKENS)
            running.close()
        self.below(f"sampling, {engine}", different(*texts), self.limits[2], "share of greedy answers that differ")

    def _repeated(self, engine: str, running, prompts: list, longest: int) -> None:
        """The same seeds among all prompts and among a few: a sample should not depend on its batch."""
        few = range(0, len(prompts), 4)
        among_all = running.generate(prompts, 4, 0.7, longest, range(len(prompts)))
        alone = running.generate([prompts[i] for i in few], 4, 0.7, longest, few)
        both = [pair for i, row in zip(few, alone, strict=True) for pair in zip(row, among_all[i], strict=True)]
        self.below(
            f"seeds, {engine}",
            different(*zip(*both, strict=True)),
            self.limits[2],
            "share of samples that differ in another batch",
        )

    def adapter(self) -> None:
        """The adapter of SFT beside the weights in vllm (`vllm serve --enable-lora`), and merged into them."""
        options, weights = self._options("sft", False), self.work / "strong"
        options["stage"] |= {"learning_rate": 0.01, "warmup_ratio": 0.0, "epochs": 3}  # it has to change what is said
        self._warm_start(options, weights)
        self.beside(weights, weights)

    def beside(self, merged: Path, adapter: Path) -> None:
        """Statements of vllm with `adapter` beside the base weights, against the ones of `merged` with its weights in them."""
        from vllm.lora.request import LoRARequest

        from orce.llm.engines import vllm

        prompts, longest, limit = [one.prompt for one in self.pairs], 8, self.limits[2]
        asked = (prompts, 1, 0.0, longest, range(len(prompts)))
        base, expected = self._said(asked), self._said(asked, merged)
        if (changed := different(base, expected)) <= limit:
            raise RuntimeError(f"the adapter changes {changed:.2f} of the statements: leaving it out would pass")
        rank = next(one for one in LORA_RANKS if one >= self.config.training.lora.r)
        model = self.model() | plain(self.config.engine) | {"max_lora_rank": rank}
        engine = vllm.load(model, engines.longest(model | {"name": "vllm"}, prompts, longest))
        engine.adapter = LoRARequest("sft", 1, str(adapter))
        found = engine.generate(*asked)
        engine.close()
        note = f"share of greedy statements that differ from merged weights; without the adapter {changed:.2f} would"
        self.below("LoRA, vllm", different(expected, found), limit, note)

    def _said(self, asked: tuple, adapter: Path | None = None) -> list:
        """What the engine transformers says, with an adapter merged into the weights or without any."""
        from orce.llm import language_model
        from orce.llm.engines import transformers

        weights = None if adapter is None else str(adapter)
        engine = transformers.Engine(language_model.load(self.model(), weights), self.config.engine.batch_tokens)
        said = engine.generate(*asked)
        engine.close()
        return said

    # ---- speed of a large shape

    def shape(self, sizes: flops.Sizes, layers: int, prompt: int, seconds: float) -> None:
        """Speed of a model of a known shape with random weights."""
        folder = self.work / "shape"
        made = ("shape", lambda: models.random_folder(
            sizes, layers, self.small, self.config.dtype, self.config.device, folder
        ))  # fmt: skip
        self.attempt(*made)
        cut = flops.cut(sizes, layers)
        model = typed(Model, self.model(folder=str(folder)))
        self.attempt("speed of training", lambda: self._fast_training(cut, model, prompt, seconds))
        self.attempt("speed of reading", lambda: self._fast_reading(cut, model, prompt, seconds))
        for engine in self.engines:
            config = structs.replace(self.config, engine=structs.replace(self.config.engine, name=engine))
            self.attempt(
                f"speed of generating, {engine}",
                lambda config=config, engine=engine: self._note(
                    f"generating, {engine}", speeds.generating(config, cut, model, prompt, seconds)
                ),
            )

    def _fast_training(self, sizes: flops.Sizes, model: Model, prompt: int, seconds: float) -> None:
        self._note("training", speeds.training(self.config, sizes, model, prompt, seconds, self.work))

    def _fast_reading(self, sizes: flops.Sizes, model: Model, prompt: int, seconds: float) -> None:
        self._note("reading", speeds.reading(self.config, sizes, model, prompt, seconds))

    def _note(self, name: str, rate: float) -> None:
        self.speeds[f"{name}, TFLOP/s"] = round(rate / 1e12, 4)
        planned = against_plan(self.card, name.partition(",")[0], rate)
        self.results.append(Result(f"speed of {name}", True, note=f"{rate / 1e12:.4g} TFLOP/s{planned}"))

    def report(self, shape: Shape, files: list[str], seconds: float) -> Report:
        """All of it, for a file that can be attached to an issue."""
        settings = {key: plain(self.config)[key] for key in ("device", "dtype", "engine", "training")}
        passed = all(result.passed for result in self.results)
        about = (machine(self.card), settings, self.results, self.starts, self.speeds)
        return Report(shape, files, round(seconds), passed, *about)


def losses(weights: Path) -> list[float]:
    """Of each step of a training."""
    return [round(entry["loss"], 6) for entry in json.loads((weights / "training_log.json").read_text())]


def different(some: Sequence, others: Sequence) -> float:
    """The share of texts that differ."""
    return sum(one != other for one, other in zip(some, others, strict=True)) / len(some)


def furthest(there: list[float], here: list[float]) -> float:
    """The largest relative difference of two trainings' losses."""
    return max(abs(a - b) / abs(a) for a, b in zip(there, here, strict=True))


def end_at_checkpoint(out: Path) -> None:
    """Kill this process as soon as the training of `out` has a whole checkpoint."""
    work = files.partial_folder(out)
    # Not rglob: it fails where a folder goes while it is searched.
    while not [*work.glob("*/checkpoints/checkpoint-1/manifest.json")]:
        time.sleep(0.005)
    os.kill(os.getpid(), signal.SIGKILL)


def runner(engine) -> dict[str, str]:
    """Which of vllm's model runners an engine uses, as its sampler and its seeds depend on it; {} of another engine."""
    if not hasattr(engine, "llm"):
        return {}
    return {"runner": "V2" if engine.llm.llm_engine.vllm_config.use_v2_model_runner else "V1"}
