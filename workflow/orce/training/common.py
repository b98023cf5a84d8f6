"""What the three trainings share: the model to train, the trainer's arguments, resuming, and the
finished folder.

A training works in a folder tagged with a digest of everything it depends on, and a killed one
resumes there from its last checkpoint. The finished folder, with manifest.json inside, gets its
final name by one rename.
"""

import contextlib
import json
import math
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from msgspec.structs import replace

from orce.artefacts import files, store
from orce.errors import BadInput
from orce.judge.reader import value_trie
from orce.llm import language_model, plain
from orce.llm.language_model import LanguageModel
from orce.llm.trie import (
    check_attention,
    check_window,
    has_own_attention,
    node_logprobs,
    path_logprobs,
)
from orce.runtime import process
from orce.runtime.machine import processor
from orce.runtime.process import KEPT_BYTES, Progress, say, speed
from orce.settings.stage import TrainingJob, TrainingSettings, parse_training_job
from orce.training.frozen_layers import FrozenLayers
from orce.training.steps import NOT_FINITE, PackedTrainer, Row, cut, longest, pack_rows

with process.hide_unused_packages():
    from transformers import TrainerCallback, TrainingArguments, set_seed
    from transformers.trainer_utils import get_last_checkpoint

MEASURED = 32  # prompts, on which the log-odds of the values are compared


# A training from start to end


def train(
    build: Callable[[LanguageModel, dict[str, Any]], Any],
    data: Sequence[Any],
    settings: TrainingSettings,
    out,
    start: str | None = None,
    judges: Sequence[dict] = (),
    **facts,
) -> None:
    """Train by the trainer that `build` makes of the model to train and the arguments of all
    trainings, and leave the folder `out`.

    The work belongs to these data, these settings, a base model of these weights, and the judges
    {file: SHA-256} that the training starts from or is held to. start: the folder of an earlier
    training that is continued. facts: for the manifest.
    """
    job = parse_training_job(settings)
    tag = files.digest(data, settings, *judges, *store.base_digests(job.model))
    work = files.partial_folder(out) / f"{Path(out).name}-{tag}"
    record = work.with_name(f"{work.name}.json")  # stays when the folder is gone
    with _locked(work), files.with_path(work):
        if _already_trained(record, Path(out)):
            shutil.rmtree(work, ignore_errors=True)
            return
        work.mkdir(exist_ok=True)
        started = time.monotonic()
        lm = trainable(job, start)
        if job.training.trainer != "trl":
            check_attention(lm.model)
        trainer = build(lm, trainer_arguments(lm, job, work))
        dtype = job.model.dtype
        # merging an adapter rounds it off, in float32 by a ten-millionth only
        rounded = job.training.method == "lora" and dtype != "float32"
        before = log_odds(lm, trainer, dtype) if rounded else None
        fit(trainer, work)
        if not trainer.is_world_process_zero():
            return
        log = save(trainer, lm, work)
        if before is not None:
            facts["log_odds"] = rounding(lm, trainer, dtype, before)
        facts |= {
            "settings": settings,  # by which orce.judge.judge finds the base model
            "steps": trainer.state.global_step,
            "loss": log[-1]["loss"] if log else None,
            "base_commit": language_model.revision_of(job.model),
            "cost": cost_of(trainer, lm, started),
        }
        publish(work, record, out, facts)


@contextlib.contextmanager
def _locked(work: Path) -> Iterator[None]:
    """Hold the lock of a training's folder. It is beside the folder, which the process that ends
    deletes while the next one waits. The processes of one training share the folder and not the
    lock.
    """
    lock = work.with_name(f"{work.name}.lock{os.environ.get('RANK', '')}")
    with files.exclusive_lock(lock):
        try:
            yield
        finally:
            lock.unlink()


def _already_trained(record: Path, out: Path) -> bool:
    """Whether `out` holds the weights that this training made; if so, its manifest.json is
    restored.
    """
    try:
        manifest = store.read_manifest(record)
    except (FileNotFoundError, BadInput):  # a changed one is written again
        return False
    if store.find_change(out, manifest):
        return False
    say(
        f"{out}: trained already, from the same data with the same settings; to train again, delete {record}"
    )
    # with the inputs of this run: equal data may be in other files
    store.write_manifest(out / "manifest.json", manifest | store.origin(out))
    return True


# The model to train


def trainable(job: TrainingJob, weights: str | None) -> LanguageModel:
    """The language model to train, by training.method: with a new adapter of training.lora, or with
    all its weights. weights: the folder of an earlier training that is continued. Raises BadInput
    as language_model.load does.
    """
    training = job.training
    model = job.model
    if training.method == "full":
        # mixed precision keeps its master weights in float32
        model = replace(model, dtype="float32")
    refuse_sharded_weights()
    lm = language_model.load(model, weights, trainable=True)
    if training.kernels == "liger":
        use_liger(lm.model)
    if training.method == "lora" and weights is None:
        set_seed(job.seed)  # of the adapter's weights
        lm.model = with_new_adapter(lm.model, training.lora)
    for module in lm.model.modules():
        if hasattr(module, "cast_input_dtype_enabled"):
            # peft's cast to float32: autocast takes the same bits without that copy.
            module.cast_input_dtype_enabled = False
    return lm


def refuse_sharded_weights() -> None:
    """Raises BadInput if accelerate is set up to share the weights among processes."""
    for variable in ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED"):
        if os.environ.get(variable, "false").lower() in ("true", "1"):
            raise BadInput(
                f"{variable} is set: one process would save its part of the weights as all of them; unset it"
            )


def with_new_adapter(model, lora):
    """peft's wrapper of a model with the adapter of `training.lora`, which changes no output before
    it is trained.
    """
    from peft import LoraConfig, get_peft_model

    layers = None  # all
    if isinstance(lora.last_layers, int):
        count = model.config.num_hidden_layers
        layers = [*range(count - lora.last_layers, count)]
    adapter = LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,  # pyrefly: ignore[bad-argument-type] (peft divides by r: a fraction is as good)
        lora_dropout=lora.dropout,
        target_modules=lora.target_modules,
        layers_to_transform=layers,
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model, adapter)


def use_liger(model) -> None:
    """Let a model, or the base of its adapter, compute RMSNorm, RoPE and SwiGLU by liger's Triton
    kernels (Hsu et al., 2024). Raises BadInput if it has none for such a model.
    """
    from liger_kernel.transformers.monkey_patch import (
        MODEL_TYPE_TO_APPLY_LIGER_FN,
        _apply_liger_kernel_to_instance,
    )

    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    kind = base.config.model_type
    if kind not in MODEL_TYPE_TO_APPLY_LIGER_FN:
        raise BadInput(
            f"training.kernels: liger has no kernels for models of type {kind}; leave the key out"
        )
    # Its loss would need all logits; ours are computed at a few columns.
    _apply_liger_kernel_to_instance(base, cross_entropy=False, fused_linear_cross_entropy=False)


# The trainer


def trainer_arguments(lm: LanguageModel, job: TrainingJob, work: Path) -> dict[str, Any]:
    """Arguments of orce.training.steps.PackedTrainer that the trainings have in common."""
    stage = job.stage
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    args = TrainingArguments(
        output_dir=str(work / "checkpoints"),
        num_train_epochs=stage.epochs,
        learning_rate=stage.learning_rate,
        # all of a step; orce.training.steps cuts it
        per_device_train_batch_size=stage.batch_size // processes,
        warmup_steps=stage.warmup_ratio,
        lr_scheduler_type=stage.scheduler,
        weight_decay=stage.weight_decay,
        seed=job.seed,
        data_seed=job.seed,
        bf16=job.model.dtype == "bfloat16",
        use_cpu=job.model.device == "cpu",
        gradient_checkpointing=job.training.checkpointing,
        logging_steps=1,
        logging_nan_inf_filter=False,  # the log shows what was seen, and the training ends there
        save_strategy="steps",
        save_steps=job.training.save_steps,
        save_total_limit=1,
        report_to=speed("training").get("report_to") or "none",
        run_name=job.label,
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        label_names=[],
    )
    return {"model": lm.model, "args": args, "grouped": job.training.grouped is True}


def check_lengths(lm: LanguageModel, rows: Sequence[Row]) -> None:
    """Raises BadInput if a row exceeds the model's context or sliding window."""
    remedy = "training computes whole attention; leave out the longest examples, or take a model with a longer window"
    check_window(lm.model.config, longest(rows), remedy)


# The steps, from the last checkpoint on


def fit(trainer, work: Path) -> None:
    """Train, from the last complete checkpoint if an earlier run was killed. Raises SystemExit 143
    after SIGTERM. With 0 epochs nothing is trained: a new adapter is zero and changes no output,
    and whole weights stay the base's.
    """
    args = trainer.args
    if not args.num_train_epochs:
        say(f"[{args.run_name}] 0 epochs: the model stays as it is")
        return
    last = last_complete(work / "checkpoints")
    if last is not None:
        say(f"resuming from {last}")
        # Micro-batches of the size that had room there: they are not cut anew, and to the same bits.
        fitting = store.manifest_facts(last).get("micro_batch_tokens", trainer.budget)
        trainer.budget = min(trainer.budget, fitting)
    if isinstance(trainer, PackedTrainer):
        trainer.frozen = compute_frozen_layers(trainer)
    report = Report(trainer)
    trainer.add_callback(report)
    previous = None
    # Several processes might not agree on the step: they stop at once, and resume from the last
    # checkpoint.
    if args.world_size == 1:
        previous = signal.signal(signal.SIGTERM, report.terminate)
    try:
        trainer.train(resume_from_checkpoint=last)
    finally:
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)
    step = trainer.state.global_step
    if report.terminated and step < trainer.state.max_steps:
        say(f"stopped by SIGTERM after step {step}; run it again to resume from there")
        raise SystemExit(128 + signal.SIGTERM)


def last_complete(checkpoints: Path) -> str | None:
    """The last complete checkpoint in a folder; those after it are deleted."""
    while checkpoints.exists():
        last = get_last_checkpoint(str(checkpoints))
        if last is None or is_complete(Path(last)):
            return last
        say(
            f"{last}: an incomplete checkpoint, or changed since it was written; going on without it"
        )
        shutil.rmtree(last)
    return None


def is_complete(checkpoint: Path) -> bool:
    """Whether a checkpoint is complete (trainer_state.json is written last), and as its manifest
    says, if it has one.
    """
    if not (checkpoint / "trainer_state.json").exists():
        return False
    try:
        return store.find_change(checkpoint, store.manifest_facts(checkpoint)) is None
    except BadInput:
        return False


def compute_frozen_layers(trainer) -> FrozenLayers | None:
    """The layers below the adapter with what they make of the trainer's examples; None where no
    layer is frozen, where nothing would be gained, and where memory would hold more than KEPT_BYTES
    of it.
    """
    args = trainer.args
    rows = trainer.rows
    model = trainer.model
    layers = FrozenLayers.of(model)
    # Each of several processes would compute the examples of all, and one epoch computes them once.
    if layers is None or args.world_size > 1 or args.num_train_epochs <= 1:
        return None
    tokens = sum(len(row.prompt_ids) + len(row.trie.inner) for row in rows)
    size = tokens * model.config.hidden_size * model.dtype.itemsize
    about = f"[{args.run_name}] {layers.count} layers are frozen"
    if size > KEPT_BYTES:
        states = f"their states of {len(rows)} examples would take {size / 2**30:.1f} GiB of memory"
        say(f"{about}, and computed in every step: {states}")
        return None
    # As many tokens as configured, also where a killed training had to halve them.
    budget = speed("training")["micro_batch_tokens"]
    with torch.autocast(model.device.type, torch.bfloat16, enabled=args.bf16):
        for batch in cut(rows, budget):
            examples = [rows[i] for i in batch]
            layers.compute(model, examples, pack_rows(examples))
    say(f"{about}: computed once for {len(rows)} examples")
    return layers


class Report(TrainerCallback):
    """Reports progress and loss, from the first process only, in place of the library's line for
    every step; seals checkpoints. After SIGTERM it lets the current step end, saves a checkpoint
    and stops.
    """

    def __init__(self, trainer):
        self.trainer = trainer
        self.terminated = False
        self.progress: Progress | None = None

    def terminate(self, signum, frame):
        self.terminated = True

    def on_step_end(self, args, state, control, **kwargs):
        if self.terminated:
            control.should_save = True
            control.should_training_stop = True

    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            self.progress = Progress(args.run_name, state.max_steps)
            self.progress.update(state.global_step)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if self.progress is not None and logs and "loss" in logs:
            self.progress.update(state.global_step, f"loss {float(logs['loss']):.4f}")

    def on_save(self, args, state, control, **kwargs):
        """Write a manifest into the checkpoint, by which `is_complete` checks it, and the
        micro-batches that memory has room for.
        """
        if not state.is_world_process_zero:
            return
        folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
        facts: dict[str, Any] = store.folder_digests(folder)
        if args.world_size > 1:  # the other processes may still be writing theirs
            facts["files"] = {
                name: value for name, value in facts["files"].items() if "rng_state" not in name
            }
        if self.trainer.budget < speed("training")["micro_batch_tokens"]:  # halved, out of memory
            facts["micro_batch_tokens"] = self.trainer.budget
        store.write_manifest(folder / "manifest.json", facts)


# Log-probabilities in the arithmetic of training


@torch.no_grad()
def logprobs(
    lm: LanguageModel,
    rows: Sequence[Row],
    tokens: int,
    dtype: str,
    report: Callable[[int], None] = lambda done: None,
) -> torch.Tensor:
    """log P of each row's K continuations, in the arithmetic of training in `dtype`: float32 [rows,
    K] on the CPU. tokens: of a forward pass. report: told how many rows are done.
    """
    result = torch.empty(len(rows), len(rows[0].trie.paths))
    done = 0
    lm.model.eval()
    with torch.autocast(lm.device.type, torch.bfloat16, enabled=dtype == "bfloat16"):
        for batch, values in _scores(lm, rows, tokens):
            result[batch] = values.float().cpu()
            done += len(batch)
            report(done)
    return result


def _scores(
    lm: LanguageModel, rows: Sequence[Row], tokens: int
) -> Iterator[tuple[list[int], torch.Tensor]]:
    """The indices of some rows at a time, with log P of their continuations [B, K]."""
    if has_own_attention(lm.model):
        for i, row in enumerate(rows):
            scores = plain.token_logprobs(lm.model, row.prompt_ids, row.continuations, tokens)
            yield [i], torch.stack([each.sum() for each in scores])[None]
        return
    for batch in cut(rows, tokens):
        packed = pack_rows([rows[i] for i in batch])
        yield batch, path_logprobs(node_logprobs(lm.model, packed), packed)


# What merging an adapter rounds off


def log_odds(lm: LanguageModel, trainer, dtype: str) -> torch.Tensor:
    """log P of the 101 values minus their mean, after MEASURED of the training's prompts:
    [MEASURED, 101].
    """
    every = math.ceil(len(trainer.rows) / MEASURED)
    trie = value_trie(lm.tokenizer)
    rows = [
        Row(prompt_ids=row.prompt_ids, trie=trie, trie_tokens=len(trie.tokens))
        for row in trainer.rows[::every]
    ]
    values = logprobs(lm, rows, 2 * trainer.budget, dtype)
    return values - values.mean(1, keepdim=True)


def rounding(lm: LanguageModel, trainer, dtype: str, before: torch.Tensor) -> dict[str, float]:
    """How far (root mean square) the training moved the log-odds from `before`, and how far merging
    the adapter moves them. The adapter of `lm` is merged: its last use.
    """
    policy = log_odds(lm, trainer, dtype)
    lm.model.merge_adapter()
    merged = log_odds(lm, trainer, dtype)
    return {"trained": _distance(before, policy), "merged": _distance(policy, merged)}


def _distance(start: torch.Tensor, end: torch.Tensor) -> float:
    return float(f"{(end - start).square().mean().sqrt().item():.4g}")


# The finished folder


def save(trainer, lm: LanguageModel, work: Path) -> list[dict[str, Any]]:
    """Save weights, tokenizer and training log, and return the log. Raises BadInput if a weight is
    not finite.
    """
    model = trainer.accelerator.unwrap_model(trainer.model)
    for name, weight in model.named_parameters():
        if weight.requires_grad and not weight.isfinite().all():
            shutil.rmtree(work)  # a checkpoint of them would lead here again
            step = f"step {trainer.state.global_step}, the last"
            raise BadInput(
                f"[{trainer.args.run_name}] {step}: weights ({name}) are not finite; {NOT_FINITE}"
            )
    final = work / "model"
    model.save_pretrained(final, safe_serialization=True)
    language_model.sort_sets(final)
    lm.tokenizer.save_pretrained(final)
    log = [entry for entry in trainer.state.log_history if "loss" in entry]
    # Sorted, as the entries that a resumed training has read from its checkpoint are.
    (final / "training_log.json").write_text(json.dumps(log, sort_keys=True) + "\n")
    return log


def cost_of(trainer, lm: LanguageModel, started: float) -> dict[str, Any]:
    """What a training took that started at `started`, of time.monotonic(): seconds, GPUs, and of a
    step the time, the tokens and the largest memory on a GPU.
    """
    gpus = 0 if lm.device.type == "cpu" else torch.cuda.device_count()
    cost: dict[str, Any] = {
        "seconds": round(time.monotonic() - started, 1),
        "gpus": gpus,
        "processor": torch.cuda.get_device_name() if gpus else processor(),
    }
    # medians of this process's steps, without the first, which warms up
    seconds = trainer.seconds[1:]
    if seconds:
        cost["step_seconds"] = round(median(seconds), 4)
        cost["step_tokens"] = median(trainer.tokens[1:])
        cost["micro_batch_tokens"] = trainer.budget
        if gpus:
            cost["peak_bytes"] = torch.cuda.max_memory_allocated()
    return cost


def publish(work: Path, record: Path, out, facts: dict[str, Any]) -> None:
    """Write the manifest of a saved folder, and give the folder its final name `out`."""
    final = work / "model"
    manifest = store.folder_digests(final) | store.origin(out) | facts
    store.write_manifest(final / "manifest.json", manifest)
    # A copy, as Snakemake deletes the original if the training ends after Snakemake itself was
    # killed.
    store.write_manifest(record, manifest)
    files.publish_folder(final, out)
    shutil.rmtree(work)
