"""What tests/test_several_gpus.py looks at, in each of several processes: two_processes.py TASK.json FOLDER."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import msgspec
import torch

from orce.artefacts.records import Pair
from orce.runtime import modules
from orce.training import common, dpo, sft, tokenized_brier


class Killed(Exception):
    pass


@contextlib.contextmanager
def killed_at_its_third_step() -> Iterator[None]:
    """The training in this block ends there, as if it were killed."""

    def killed(self, args, state, control, **kwargs):
        if state.global_step == 3:
            raise Killed

    with mock.patch.object(common.Report, "on_step_end", killed):
        try:
            yield
        except Killed:
            return
    raise AssertionError("it ended before")


def main(examples: list[dict], pairs: list[dict], lora: dict, folder: Path) -> None:
    """Every kind of training, in a process of several or in one."""
    full, trl, again = (
        lora | {"training": lora["training"] | how}
        for how in ({"method": "full"}, {"trainer": "trl"}, {"save_steps": 2})
    )
    with killed_at_its_third_step():
        sft.train(examples, again, folder / "again")
    assert not (folder / "again").exists()
    warm, ordered = folder / "sft", Path(__file__).parents[1] / "evidence/methods/ordered.py"
    for name, train, *arguments in (
        ("again", sft.train, examples, again),
        ("sft", sft.train, examples, lora),
        ("full", sft.train, examples, full),
        ("trl", sft.train, examples, trl),
        ("conftuner", tokenized_brier.train, examples, lora),
        ("ordered", modules.from_file(str(ordered)).train, examples, lora),
        ("dpo", dpo.train, msgspec.convert(pairs, list[Pair]), lora, warm, warm),
    ):
        train(*arguments, folder / name)
        if torch.distributed.is_initialized():  # by the first training; the first process saves what the next one reads
            torch.distributed.barrier()


if __name__ == "__main__":
    main(*json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
