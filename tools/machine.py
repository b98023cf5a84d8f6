"""What `make gpu-check` asks of a machine itself: its GPU, a process of its own for each check, and PyTorch's attention."""

import contextlib
import multiprocessing
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from orce.runtime import lease, machine
from orce.runtime.process import say


@dataclass
class Result:
    """passed: None if the check was not run. `value` may be at most `limit`; `note` says more, or why the check failed."""

    name: str
    passed: bool | None
    value: float | None = None
    limit: float | None = None
    note: str = ""

    def __str__(self) -> str:
        limit = "" if self.limit is None else f" {self.value:g} (at most {self.limit:g})"
        return f"{ {True: 'passed', False: 'FAILED', None: 'not run'}[self.passed]:7} {self.name}{limit}  {self.note}"


def below(name: str, value: float, limit: float, note: str) -> Result:
    return Result(name, bool(value <= limit), round(value, 6), limit, note)  # NaN is not below


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


def at_hand() -> dict[str, Any]:
    """The first GPU that torch sees, memory in GB. Starts CUDA, or raises what torch says."""
    torch.cuda.init()
    card, (free, total) = torch.cuda.get_device_properties(0), torch.cuda.mem_get_info()
    driver = subprocess.run(machine.SMI[1], check=False, capture_output=True, text=True).stdout.partition("\n")[0]
    known = {"name": card.name, "capability": card.major + card.minor / 10, "driver": driver or "unknown"}
    return known | {"memory": total / 1e9, "free": free / 1e9}


def take(devices: list[str]) -> list[str]:
    """Lease two of the visible GPUs, or the one. This process sees the first alone: the trainer would split every batch
    among several, and vllm every model."""
    if len(devices) < 2:
        return devices
    taken = lease.lease(devices, 2)
    os.environ[lease.SELECTOR] = taken[0]
    say(f"[gpu-check] GPU {' and '.join(taken)} of {len(devices)}")
    return taken


def attention(device: str, dtype: str) -> Iterator[Result]:
    """cuDNN's attention, on and off: the time of a shape seen before and of new ones, and the case of a NaN (PyTorch 196678)."""
    where: Any = {"device": device, "dtype": getattr(torch, dtype)}
    rows, heads, widths = (12, 32, range(501, 564, 7)) if device == "cuda" else (1, 1, range(51, 64, 7))

    def milliseconds(width: int) -> float:
        sides = [torch.randn(rows, heads, side, 128, **where).requires_grad_() for side in (width, *[width + 60] * 2)]
        mask, started = torch.zeros(rows, 1, width, width + 60, **where), time.monotonic()
        scaled_dot_product_attention(*sides, attn_mask=mask).sum().backward()
        assert sides[0].grad is not None
        sides[0].grad.sum().item()  # waits for the GPU
        return 1e3 * (time.monotonic() - started)

    allowed, notes, broken = torch.backends.cuda.cudnn_sdp_enabled(), list[str](), dict[bool, int]()
    for cudnn in (True, False):
        torch.backends.cuda.enable_cudnn_sdp(cudnn)
        milliseconds(widths[0])
        old, new = (statistics.median(map(milliseconds, some)) for some in ([widths[0]] * len(widths), widths))
        query, key, value = (torch.randn(1, 1, 704, 64, **where) for _ in range(3))
        query[..., 0], key[..., 0] = 1, -960  # a row's logsumexp is far below zero
        mask = torch.ones(704, 704, dtype=torch.bool, device=device).tril()
        scaled_dot_product_attention(query.requires_grad_(), key, value, attn_mask=mask).sum().backward()
        broken[cudnn] = 0 if query.grad is None else int((~query.grad.isfinite()).sum())
        notes.append(f"with{'' if cudnn else 'out'} it {old:.1f} ms, {new:.1f} ms of a new shape, {broken[cudnn]} such")
    yield below("attention", broken[allowed], 0, f"gradients not finite; cuDNN's attention: {'; '.join(notes)}")
