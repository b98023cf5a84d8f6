"""The reader of confidence LLMs that the configuration names: transformers or vllm."""

from collections.abc import Sequence
from typing import Protocol

from orce.confidence.distribution import Reading
from orce.llm.chat import Messages


class Reader(Protocol):
    """Reads confidences from any number of confidence LLMs over one base model.

    adapter: the folder of a training step, an adapter or a whole model; None is the untrained base model.
    """

    def read(
        self, prompts: Sequence[Messages], state_text: bool = True, *, adapter: str | None = None
    ) -> list[Reading]:
        """One Reading for each prompt; with `state_text` also the greedy text."""
        ...

    def close(self) -> None:
        """Release the model."""
        ...


def open(settings: dict, adapters: list[str], longest: int | None = None) -> Reader:
    """A reader of the confidence LLMs in the folders `adapters`, and of the untrained model.

    settings: model, batch_tokens, engine (transformers or vllm) and, for vllm, gpu_memory_utilization,
    max_model_len and max_num_seqs.
    longest: for vllm, the longest prompt plus distribution.STATEMENT_TOKENS, in tokens (orce.llm.engines.longest). At most one
    model is in memory, so read folders of whole models (training.method: full) one after the other. The transformers
    reader can also sample from the distribution (`sample`, see orce.confidence.reader).
    """
    if settings["engine"] == "transformers":
        from orce.confidence.reader import SwitchingReader

        return SwitchingReader(settings["model"], settings["batch_tokens"])
    from orce.confidence.vllm_reader import VllmReader

    keys = ("gpu_memory_utilization", "max_model_len", "max_num_seqs")
    memory = {key: settings[key] for key in keys if key in settings}
    return VllmReader(settings["model"] | memory, adapters, longest)
