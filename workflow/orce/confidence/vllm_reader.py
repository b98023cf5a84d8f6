"""Reading confidences with vllm: what orce.confidence.reading reads, for any number of adapters from one engine.

Every node of the value tree is one request: the prompt, the tokens down to that node, and the log-probabilities of the
tokens that may follow. vllm computes the prompt once for all of them (prefix caching), and puts requests of many
prompts into one batch.
"""

import torch

from orce.confidence import distribution
from orce.llm import adapters
from orce.llm.chat import Messages, prompt_ids
from orce.llm.engines import vllm as engine
from orce.llm.trie import TokenTree
from orce.runtime.files import BadInput


class VllmReader:
    """Reads with one engine, which serves the base model and all `adapters`; whole models get engines in turn."""

    def __init__(self, settings: dict, folders: list[str], longest: int | None = None):
        self.settings, self.longest, self.llm, self.own = settings, longest, None, None
        self.folders = list(dict.fromkeys(folder for folder in folders if adapters.is_adapter(folder)))

    def read(self, prompts: list[Messages], state_text: bool = True, adapter: str | None = None):
        """One distribution.Reading a prompt; with `state_text` also the greedy text."""
        lora = self._serve(adapter)
        asked = ([self._text_request([])] if state_text else []) + self._node_requests
        outputs = self._generate(prompts, asked, lora)
        nodes = torch.tensor([self._node_logprobs(row[-len(self._node_requests) :]) for row in outputs])
        texts = self._texts([row[0] for row in outputs]) if state_text else [None] * len(prompts)
        logprobs = distribution.value_logprobs(nodes, self.tree).numpy()
        greedy = distribution.greedy_value(nodes, self.tree)
        return [distribution.Reading(*row) for row in zip(logprobs, greedy, texts, strict=True)]

    def force(self, prompts: list[Messages], adapter: str | None = None) -> list[str]:
        """See reader.Reader.force."""
        lora = self._serve(adapter)
        opening = self.tokenizer("Confidence:", add_special_tokens=False)["input_ids"]
        outputs = self._generate(prompts, [self._text_request(opening)], lora)
        return [f"Confidence:{text}" for text in self._texts([row[0] for row in outputs])]

    def close(self) -> None:
        """Stop vllm and free its memory."""
        engine.stop(self)

    def _serve(self, folder: str | None):
        """Have the right engine run; the LoRARequest for `folder`, None for whole models."""
        own = folder if folder is not None and not adapters.is_adapter(folder) else None
        if self.llm is None or own != self.own:
            self.close()
            self._start(own)
        if folder == own:
            return None
        if folder not in self.requests:
            raise ValueError(f"{folder}: this reader was opened for the adapters {', '.join(self.requests) or 'none'}")
        return self.requests[folder]

    def _start(self, own: str | None) -> None:
        settings = self.settings | ({"source": {"path": own}} if own is not None else {})
        folders = self.folders if own is None else []
        self.llm = engine.start(settings, self.longest, **lora_options(folders))
        self.own, self.requests = own, self._register(folders)
        self.tokenizer, self.ends = engine.vocabulary(settings)
        self.template_kwargs = settings.get("template_kwargs") or {}
        self.tree = distribution.value_tree(self.tokenizer)
        self._node_requests = [self._node_request(slot, node) for slot, node in enumerate((-1, *self.tree.fed))]

    def _register(self, folders: list[str]) -> dict:
        """LoRARequests by folder. vllm would load an adapter with its first prompt only: what it cannot serve shows now."""
        from vllm.lora.request import LoRARequest

        requests = {folder: LoRARequest(folder, number, folder) for number, folder in enumerate(folders, 1)}
        for folder, request in requests.items():
            try:
                self.llm.llm_engine.add_lora(request)
            except (ValueError, RuntimeError) as error:
                self.close()
                raise BadInput(
                    f"{folder}: vllm cannot serve this adapter ({engine.words(error)}); set evaluation.engine to "
                    "transformers"
                ) from None
        return requests

    def _text_request(self, behind: list[int]) -> tuple[list[int], dict]:
        return behind, {"max_tokens": distribution.STATEMENT_TOKENS, "stop_token_ids": sorted(self.ends)}

    def _node_request(self, slot: int, node: int) -> tuple[list[int], dict]:
        """Tokens behind the prompt and sampling parameters that give the log-probabilities of `node`'s children."""
        children = [token for place, token in zip(self.tree.slots, self.tree.tokens, strict=True) if place == slot]
        return path(self.tree, node), {"max_tokens": 1, "logprob_token_ids": children}

    def _generate(self, prompts: list[Messages], asked: list[tuple[list[int], dict]], lora) -> list[list]:
        """vllm's completions of the requests `asked` behind every prompt: [prompt][request]."""
        from vllm import SamplingParams

        ids = [prompt_ids(self.tokenizer, messages, self.template_kwargs) for messages in prompts]
        engine.check_lengths(prompts, ids, distribution.BUDGET, self.llm.model_config.max_model_len)
        params = [SamplingParams(temperature=0, detokenize=False, **options) for _, options in asked]
        requests = [{"prompt_token_ids": one + behind} for one in ids for behind, _ in asked]
        outputs = self.llm.generate(requests, params * len(ids), lora_request=lora, use_tqdm=False)
        completions = [output.outputs[0] for output in outputs]
        return [completions[start : start + len(asked)] for start in range(0, len(completions), len(asked))]

    def _node_logprobs(self, completions: list) -> list[float]:
        """Log-probability of each node's token, from the completions of the node requests."""
        rows = [completion.logprobs[0] for completion in completions]
        return [rows[slot][token].logprob for slot, token in zip(self.tree.slots, self.tree.tokens, strict=True)]

    def _texts(self, completions: list) -> list[str]:
        return engine.decoded(self.tokenizer, self.ends, completions)


def path(tree: TokenTree, node: int) -> list[int]:
    """Tokens from the prompt's end down to `node`."""
    return [] if node == -1 else [*path(tree, tree.parents[node]), tree.tokens[node]]


def lora_options(folders: list[str]) -> dict:
    """Arguments with which vllm serves the adapters in `folders` beside the base model."""
    if not folders:
        return {}
    from typing import get_args

    from vllm.config.lora import MaxLoRARanks

    needed = max(map(adapters.rank, folders))
    possible = [rank for rank in get_args(MaxLoRARanks) if rank >= needed]
    if not possible:
        raise BadInput(
            f"training.lora.r: vllm serves ranks up to {max(get_args(MaxLoRARanks))}, not {needed}; set "
            "evaluation.engine to transformers"
        )
    return {"enable_lora": True, "max_loras": len(folders), "max_lora_rank": min(possible)}
