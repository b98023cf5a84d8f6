"""Sampling from an OpenAI-compatible server: the answer LLM as a black box, whoever runs it.

This module decides what to send, and learns what a server refuses; orce.llm.chat_client sends it. A parameter that is
refused is left out from then on, said once, and counted in the run's account (`left_out`). The key is read from the
environment variable that the configuration names (OPENAI_API_KEY). A killed step loses at most the current chunk
(orce.artefacts.files.in_chunks).
"""

import asyncio
import hashlib
import os
import re
from collections.abc import Mapping
from typing import Any

import httpx2
from msgspec import UnsetType

from orce.errors import BadInput
from orce.llm import plain_text
from orce.llm.account import Account
from orce.llm.chat import Messages
from orce.llm.chat_client import Client, Rejected
from orce.llm.engines import Text
from orce.llm.pace import Pace
from orce.runtime import process
from orce.runtime.process import say
from orce.stage_settings import Source, plain, typed

CONCURRENCY = 16
TIMEOUT = 600.0  # seconds from the first to the last byte; a busy server can take minutes for a long answer
RETRIES = 10
KEY = "OPENAI_API_KEY"
# What may be left out where a server refuses it, and what that means.
OPTIONAL = {
    "temperature": "it samples at its own temperature, also for the greedy answer",
    "top_p": "it samples from its own share of the probability",
    "seed": "the same request may give another text",
    "logprobs": "there are no token probabilities of its answers",
}
REFUSAL = re.compile(
    r"support|unknown|unrecogni[sz]ed|unexpected|extra|permitted|allowed|cannot both|mutually exclusive|only the default|not available",
    re.IGNORECASE,
)


def load(settings: Mapping[str, Any], longest: int | None = None) -> "Engine":
    """An engine for a source {server, model}; `longest` is ignored, as the server knows its own limit."""
    source = typed(Source, settings["source"])
    if isinstance(source.server, UnsetType) or isinstance(source.model, UnsetType):
        raise BadInput(f"models.*.source: the engine openai needs {{server, model}}, this one is {plain(source)}")
    rates = settings.get("rates", {}).get(f"{source.server} {source.model}", {})
    pace = Pace(rates.get("requests_per_minute"), rates.get("tokens_per_minute"))
    timeout, retries = settings.get("timeout") or TIMEOUT, settings.get("max_retries", RETRIES)
    client = Client(source.server, timeout, retries, _key(rates.get("key")), pace)
    concurrency = settings.get("concurrency") or CONCURRENCY
    return Engine(client, source.model, concurrency, settings.get("template_kwargs") or {}, settings.get("api"))


def _key(named: str | None) -> str:
    name = named or KEY
    key = os.environ.get(name, "").strip()
    if named is not None and not key:
        raise BadInput(f"{name}: not set, and the configuration names it as a server's key; export {name}=...")
    # The HTTP library would quote the value in its own error.
    if not (key.isascii() and key.isprintable()):
        raise BadInput(f"{name}: holds characters that cannot stand in a header; set it again")
    return key


class Engine:
    """Samples texts from one model of one server, `concurrency` requests at a time.

    api: {request: fields of every request, reasoning_tokens: added to the budget of an answer, logprobs: ask for those of
    greedy texts}, each optional.
    """

    def __init__(
        self, client: Client, model: str, concurrency: int, template_kwargs: dict[str, Any], api: dict | None = None
    ):
        self.client, self.model, self.concurrency = client, model, concurrency
        self.template_kwargs, self.api = template_kwargs, api or {}
        self.limit, self.several = "max_tokens", True  # what the server accepts, as far as we know
        self.reported: set[str] = set()
        self.asked: set[bool] = set()  # whether greedy: the kinds of requests that were answered

    @property
    def account(self) -> Account:
        """What was spent, and what the server was found to refuse."""
        return self.client.account

    def generate(
        self,
        prompts: list[Messages],
        n: int,
        temperature: float,
        max_tokens: int,
        seeds: list[int],
        top_p: float = 1.0,
    ) -> list[list[str]]:
        """`n` texts for each prompt, as orce.llm.engines says. Temperature 0 is greedy: one text, repeated n times.

        The first error cancels all other requests.
        """
        common: dict = {"model": self.model, "temperature": temperature} | self.api.get("request", {})
        if temperature == 0 and self.api.get("logprobs"):
            common["logprobs"] = True
        # Some servers refuse unknown keys, or temperature together with top_p: send only what differs from the default.
        if top_p < 1:
            common["top_p"] = top_p
        if self.template_kwargs:
            common["chat_template_kwargs"] = self.template_kwargs
        distinct = 1 if temperature == 0 else n
        held = [any(plain_text.USUAL.search(turn["content"]) for turn in messages) for messages in prompts]
        what = f"hold text that looks like a control token: the server of {self.model} may read it as one"
        process.count_prompts(what, sum(held), len(held))
        bodies = [common | {"messages": messages} for messages in prompts]
        max_tokens += self.api.get("reasoning_tokens", 0)
        try:
            texts = asyncio.run(self._sample_all(bodies, distinct, max_tokens, seeds))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        if (cut := self.account.counts["cut"]) and not self.api.get("reasoning_tokens"):
            self._report("cut", f"{cut} replies used their budget up before an answer; raise api.reasoning_tokens")
        if "logprobs" in common and all(text.logprobs is None for row in texts for text in row if text):
            self._leave_out("logprobs")
        return [[*row] * n if temperature == 0 else [*row] for row in texts]

    def close(self) -> None:
        """Nothing to release: every call of generate closes its connections."""

    async def _sample_all(self, bodies: list[dict], n: int, max_tokens: int, seeds: list[int]) -> list[list[Text]]:
        texts: list[list[Text]] = [[] for _ in bodies]
        todo = iter(range(len(bodies)))

        async def work() -> None:
            for i in todo:
                texts[i] = await self._sample(http, bodies[i], n, max_tokens, seeds[i])

        # The first request of a kind goes alone: what the server refuses is then learnt once, and not by each of many.
        kind = bool(bodies) and bodies[0]["temperature"] == 0
        async with self.client.connections() as http, asyncio.TaskGroup() as group:
            if bodies and kind not in self.asked:
                texts[0] = await self._sample(http, bodies[next(todo)], n, max_tokens, seeds[0])
                self.asked.add(kind)
            for _ in range(min(self.concurrency, len(bodies))):
                group.create_task(work())
        return texts

    async def _sample(self, http: httpx2.AsyncClient, body: dict, n: int, max_tokens: int, seed: int) -> list[Text]:
        """`n` texts, in as many requests as needed: servers may return fewer choices than requested."""
        texts: list[Text] = []
        number = 0
        while len(texts) < n:
            missing = n - len(texts) if self.several else 1
            sent = body | {self.limit: max_tokens, "seed": request_seed(seed, number)}
            if missing > 1:
                sent["n"] = missing
            sent = {key: value for key, value in sent.items() if key not in self.account.left_out}
            try:
                texts += (await self.client.complete(http, sent))[:missing]
            except Rejected as refusal:
                if not self._learn(sent, refusal):
                    raise
                continue
            number += 1
        return texts

    def _learn(self, sent: dict, refusal: Rejected) -> bool:
        """Adapt to a refusal; return whether there is another form of the request to try, now and from then on."""
        if refusal.status not in (400, 403, 422):
            return False
        named = [name for name in OPTIONAL if name in sent and self._names(refusal, name)]
        if refusal.status == 403:
            named = [name for name in named if name == "logprobs"]
        elif "max_tokens" in sent and "max_completion_tokens" in refusal.reason:
            self.limit = "max_completion_tokens"
            return True
        for name in named[:1]:  # one at a time: a message may name others that would do
            self._leave_out(name)
            return True
        if "n" in sent and refusal.status != 403:
            self.several = False
            return True
        return False

    @staticmethod
    def _names(refusal: Rejected, name: str) -> bool:
        """Whether a server refuses a parameter, and not the value that it has."""
        named = refusal.parameter == name or re.search(rf"\b{name}\b", refusal.reason) is not None
        return named and REFUSAL.search(refusal.reason) is not None

    def _leave_out(self, name: str) -> None:
        if name not in self.account.left_out:
            self.account.left_out.add(name)
            self._report(name, f"takes no {name}, which is left out from now on: {OPTIONAL[name]}")

    def _report(self, what: str, words: str) -> None:
        if what not in self.reported:
            self.reported.add(what)
            say(f"[{self.client.server}] {self.model}: {words}")


def request_seed(seed: int, number: int) -> int:
    """Seed of a prompt's request `number`; 31 bits, which every server accepts."""
    digest = hashlib.sha256(f"{seed}/{number}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
