"""What tests/test_several_gpus.py looks at, in each of several processes: two_processes.py TASK.json FOLDER."""

import contextlib
import json
import sys
from pathlib import Path
from unittest import mock

import msgspec
import torch

from orce.artefacts.records import Pair
from orce.training import common, dpo, sft, tokenized_brier


def wait() -> None:
    """Until both are here: the first process saves, and the next training reads what it saved."""
    if torch.distributed.is_initialized():  # by the first training
        torch.distributed.barrier()


def main(task: dict, folder: Path) -> None:
    """Every kind of training, in a process of several or in one."""
    lora, full = task["settings"], task["settings"] | {"training": task["settings"]["training"] | {"method": "full"}}
    sft.train(task["examples"], lora, folder / "sft")
    wait()
    dpo.train(msgspec.convert(task["pairs"], list[Pair]), lora, folder / "sft", folder / "sft", folder / "dpo")
    wait()
    correct = [{"prompt": one["prompt"], "correct": one["percent"] > 50} for one in task["examples"]]
    tokenized_brier.train(correct, lora | {"method": "conftuner"}, folder / "conftuner")
    wait()
    sft.train(task["examples"], full, folder / "full")
    wait()
    taken_up(task["examples"], lora | {"training": lora["training"] | {"save_steps": 2}}, folder / "again")


class Killed(Exception):
    pass


def killed(self, args, state, control, **kwargs):
    if state.global_step == 3:
        raise Killed


def taken_up(examples: list[dict], settings: dict, out: Path) -> None:
    """A training that ends after its third step in every process, and is started once more."""
    with mock.patch.object(common.Report, "on_step_end", killed), contextlib.suppress(Killed):
        sft.train(examples, settings, out)
    assert not out.exists()
    sft.train(examples, settings, out)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
