"""The paths of a run under results/, by dataset, model and method; no other module builds such a
path.
"""

from typing import NamedTuple

from orce.artefacts.store import RESULTS
from orce.settings.stage import PAPER_REWARD

UNGRADED = "ungraded-"  # begins the name of samples that a grader has yet to grade


def prompts(dataset: str, split: str) -> str:
    return f"{RESULTS}/{dataset}/prompts/{split}.jsonl"


def weights_manifest(model: str) -> str:
    """Manifest of weights that the workflow converts from a package, or fetches from the hub."""
    return f"{RESULTS}/models/{model}/manifest.json"


class Cell(NamedTuple):
    dataset: str
    model: str

    @property
    def folder(self) -> str:
        return f"{RESULTS}/{self.dataset}/{self.model}"

    def confidences(self, method: str) -> str:
        return f"{self.folder}/{method}/confidences.jsonl"

    def metrics(self, method: str) -> str:
        return f"{self.folder}/{method}/metrics.json"


def round_folder(reward: str, round: int) -> str:
    """Folder of a round of DPO inside its cell's folder: "" for the first, whose files are in the
    cell's folder itself.
    """
    return "" if round == 1 else f"round{round}/{reward}/"


def round_start(reward: str, round: int) -> str:
    """Name of the confidence LLM that a round of DPO starts from: the warm start, later the result
    of the previous round.
    """
    return "sft" if round == 1 else f"{round_folder(reward, round)}start"


def reward_and_round(name: str) -> tuple[str, int | None]:
    """(reward, round) that train a confidence LLM: 'dpo-nrd' is the result of the last round
    (None), 'round3/nrd/start' the result of the second.
    """
    if name.startswith("round"):
        number, reward, _ = name.removeprefix("round").split("/")
        return reward, int(number) - 1
    return name.removeprefix("dpo").removeprefix("-") or PAPER_REWARD, None
