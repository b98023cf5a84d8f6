"""Sampling from an OpenAI-compatible server: the answer LLM as a black box, whoever runs it.

The engine learns what a server refuses: a refused parameter is left out from then on, reported
once, and recorded (`left_out`). A reply is a stranger's: its size and its whole time are capped, it
is never decompressed, no redirect is followed, no cookie kept, and no control character of it is
printed. The key is sent in one header, and removed from every message of the server. openai's own
client would read a reply of any size and retry none that is broken, so the requests are sent by
httpx2.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import hashlib
import http.cookiejar
import itertools
import json
import math
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Mapping
from typing import Any

import httpx2
from msgspec import UnsetType

from orce.errors import BadInput, printable
from orce.llm.chat import CONTROL_LIKE, Messages
from orce.llm.engines import Text
from orce.llm.engines.replies import (
    Trouble,
    seconds_of,
    texts_of,
    tokens,
)
from orce.runtime import process
from orce.runtime.process import say
from orce.settings.stage import Source, from_mapping, to_mapping

KEY = "OPENAI_API_KEY"
ENDPOINT = "/chat/completions"  # below the server's address, which may be given with it
CONCURRENCY = 16  # requests at a time
RETRIES = 10
# seconds from the first to the last byte; a busy server can take minutes for a long answer
TIMEOUT = 600.0
TEMPORARY = {408, 409, 425, 429}  # and every 5xx
BACKOFF = 0.5  # seconds: the first wait is at most so long, each further one twice the last
LONGEST_BACKOFF = 60.0
LONGEST_WAIT = 600.0  # seconds; the most that a server may ask for
LARGEST_REPLY = 2**24  # bytes; 100 answers of 8,192 tokens take less than 2**23
LARGEST_COMPLAINT = 20_000  # bytes of an error's reply
QUIET = 30.0  # seconds between two lines about a server in trouble
CHARACTERS = 4  # of a token, for the estimate before a request
# characters of the longest token of common vocabularies: a reply of more a token is cut
LONGEST_TOKEN = 128
# What may be left out where a server refuses it, and what that means.
OPTIONAL = {
    "temperature": "it samples at its own temperature, also for the greedy answer",
    "top_p": "it samples from its own share of the probability",
    "seed": "the same request may give another text",
    "logprobs": "there are no token probabilities of its answers",
}
UNANSWERED = (
    "each is thoughts alone (is thinking off on a server that still parses thoughts?), a call of a"
    " tool, or nothing"
)
# Matches messages that reject a parameter's presence, not its value.
REFUSAL = re.compile(
    r"support|unknown|unrecogni[sz]ed|unexpected|extra|permitted|allowed|cannot both"
    r"|mutually exclusive|only the default|not available",
    re.IGNORECASE,
)
# Matches messages that reject one question, by what it says or by its length.
OF_A_QUESTION = re.compile(
    r"content[_ ](?:management|filter|polic|inspection|moderation|exists)|moderat(?:ion|ed)"
    r"|responsible ?ai|data_?inspection"
    r"|(?:safety|usage) (?:system|filter|polic|guideline|reason|setting)|inappropriate|flagged"
    r"|unsafe|prohibited|high risk|invalid_prompt|敏感|不安全|context[_ ](?:length|window|size)"
    r"|max(?:imum)?[_ ](?:input|prompt|model|sequence)[_ ]len|too many (?:input |prompt )?tokens"
    r"|reduce the length|\b(?:prompt|inputs?|request|messages)\b[^.]{0,60}"
    r"(?:too (?:long|large)|exceed|longer than|must be <)",
    re.IGNORECASE,
)
# Matches messages about the account, whatever else they say.
OF_AN_ACCOUNT = re.compile(
    r"\b(?:account|api[ _]key|organi[sz]ation|billing|quota|subscription)\b", re.IGNORECASE
)
NAMED = 20  # refused questions that are named one by one
# reads the certificates once, not for each chunk of questions
trusted = functools.cache(httpx2.create_ssl_context)


class Learnt(Exception):
    """A refusal that shows the engine another form of the request, to be tried at once."""


class Refused(Exception):
    """A refusal of one question, and not of others."""


class Engine:
    """Samples texts from one model of one server, `concurrency` requests at a time.

    settings: the model's and the engine's in one. `api`: {request: fields of every request,
    reasoning_tokens: added to the budget of an answer, logprobs: ask for them for greedy texts};
    `rates`: by server and model, the variable of its key, and how many requests and tokens a minute
    one job may use. `longest` is ignored, as the server knows its own limit.
    """

    def __init__(self, settings: Mapping[str, Any], longest: int | None = None):
        source = from_mapping(Source, settings["source"])
        if isinstance(source.server, UnsetType) or isinstance(source.model, UnsetType):
            raise BadInput(
                f"models.*.source: the engine openai needs {{server, model}}, this one is {to_mapping(source)}"
            )
        self.server = source.server
        self.model = source.model
        self.url = self.server.rstrip("/").removesuffix(ENDPOINT) + ENDPOINT
        rates = settings.get("rates", {}).get(f"{self.server} {self.model}", {})
        self.key = read_key(rates.get("key"))
        # seconds, 0 without a rate
        self.per_request = 60 / (rates.get("requests_per_minute") or math.inf)
        self.per_token = 60 / (rates.get("tokens_per_minute") or math.inf)
        # time.monotonic() at which the next request may start, by either rate
        self.next_request = 0.0
        self.next_tokens = 0.0
        self.concurrency = settings.get("concurrency") or CONCURRENCY
        self.timeout = settings.get("timeout") or TIMEOUT
        self.max_retries = settings.get("max_retries", RETRIES)
        self.template_kwargs = settings.get("template_kwargs")
        self.api = settings.get("api") or {}
        # What the server accepts, as far as we know.
        self.limit = "max_tokens"
        self.several = True  # choices in one reply
        self.left_out: set[str] = set()
        self.tried: set[float] = set()  # the temperatures at which requests were answered
        self.answered = False  # whether it ever sent a reply of any kind
        self.replied = False  # whether it ever sent a chat completion
        self.counts: Counter[str] = Counter()  # since the last call of `spent`
        self.refused: dict[str, str] = {}  # why, by the question's end
        self.said: set[str] = set()  # what is said once
        self.reported = time.monotonic()  # when trouble was last said

    def generate(
        self,
        prompts: list[Messages],
        n: int,
        temperature: float,
        max_tokens: int,
        seeds: list[int],
        top_p: float = 1.0,
    ) -> list[list[str]]:
        """See orce.llm.engines. The first error cancels all other requests."""
        hostile = 0
        for messages in prompts:
            hostile += any(CONTROL_LIKE.search(turn["content"]) for turn in messages)
        what = f"hold text that looks like a control token: the server of {self.model} may read it as one"
        process.tally(what, hostile, len(prompts))
        common = self._fields(temperature, top_p)
        bodies = [common | {"messages": messages} for messages in prompts]
        budget = max_tokens + self.api.get("reasoning_tokens", 0)
        # Greedy decoding gives the same text n times, and is asked for once.
        samples = 1 if temperature == 0 else n
        before = self.counts["refused"]
        try:
            texts = run_apart(self._sample_all(bodies, samples, budget, seeds))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        refused = self.counts["refused"] - before
        self._say_unanswered()
        if refused == sum(map(len, texts)) > 1 and len(prompts) > 1 and not self.replied:
            raise BadInput(
                f"{self.server} refuses each of {len(prompts)} questions: {[*self.refused.values()][-1]}"
            )
        written = [text for row in texts for text in row if text.strip()]
        if "logprobs" in common and written and all(text.logprobs is None for text in written):
            self._leave_out("logprobs")
        copies = n if temperature == 0 else 1
        return [[*row] * copies for row in texts]

    def _fields(self, temperature: float, top_p: float) -> dict[str, Any]:
        """The fields that all requests of a call have."""
        fields = {"model": self.model, "temperature": temperature} | self.api.get("request", {})
        if temperature == 0 and self.api.get("logprobs"):
            fields["logprobs"] = True
        # Some servers refuse unknown keys, or temperature together with top_p: send only what
        # differs from the default.
        if top_p < 1:
            fields["top_p"] = top_p
        if self.template_kwargs:
            fields["chat_template_kwargs"] = self.template_kwargs
        return fields

    def _say_unanswered(self) -> None:
        """Say once of each kind how many replies had no answer in them: they count as empty answers,
        which are wrong.
        """
        cut = self.counts["cut"]
        if cut and not self.api.get("reasoning_tokens"):
            remedy = "raise api.reasoning_tokens"
            self._say_once("cut", f"{cut} replies used their budget up before an answer; {remedy}")
        if self.counts["unanswered"]:
            number = f"{self.counts['unanswered']} of its replies"
            self._say_once(
                "unanswered", f"{number} have no answer, which stays empty: {UNANSWERED}"
            )

    def spent(self) -> dict[str, Any]:
        """Counts since the last call: requests, tokens as in USAGE, answers refused, replies cut
        before an answer; `left_out`.
        """
        counts: dict[str, Any] = dict(+self.counts)  # without those that are 0
        self.counts.clear()
        if counts and self.left_out:
            counts["left_out"] = sorted(self.left_out)
        return counts

    def close(self) -> None:
        """Every call of generate closes its connections."""

    async def _sample_all(
        self, bodies: list[dict], n: int, max_tokens: int, seeds: list[int]
    ) -> list[list[Text]]:
        texts: list[list[Text]] = [[] for _ in bodies]
        todo = iter(range(len(bodies)))

        async def work(count: int | None = None) -> None:
            for i in itertools.islice(todo, count):
                texts[i] = await self._sample(bodies[i], n, max_tokens, seeds[i])

        async with self._connect() as self.client, asyncio.TaskGroup() as group:
            # The first request of a kind goes alone: what the server refuses is then learnt once,
            # and not by each of many.
            kinds = {body["temperature"] for body in bodies}
            if kinds - self.tried:
                await work(1)
                self.tried |= kinds
            for _ in range(self.concurrency):
                group.create_task(work())
        return texts

    def _connect(self) -> httpx2.AsyncClient:
        headers = {"User-Agent": "orce", "Accept-Encoding": "identity"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        no_cookies = http.cookiejar.DefaultCookiePolicy(allowed_domains=[])
        # Redirects stay off (httpx2's default): they would take the key to another host. `_send`
        # limits the whole time; a server that drips would stretch a timeout between two bytes for
        # ever.
        return httpx2.AsyncClient(
            verify=trusted(),
            headers=headers,
            timeout=None,
            limits=httpx2.Limits(max_connections=None),
            cookies=http.cookiejar.CookieJar(no_cookies),
        )

    async def _sample(self, body: dict, n: int, max_tokens: int, seed: int) -> list[Text]:
        """`n` texts, in as many requests as needed: servers may return fewer choices than
        requested.
        """
        texts: list[Text] = []
        number = retries = 0
        while len(texts) < n:
            missing = n - len(texts) if self.several else 1
            sent = body | {self.limit: max_tokens, "seed": request_seed(seed, number)}
            if missing > 1:
                sent["n"] = missing
            sent = {key: value for key, value in sent.items() if key not in self.left_out}
            try:
                texts += (await self._post(sent))[:missing]
                number += 1
                retries = 0
            except Learnt:
                pass
            except Refused as refusal:
                return self._empty(body, str(refusal), n)
            except Trouble as trouble:
                if retries == self.max_retries:
                    gave_up = f"gave up (retries: {retries})"
                    raise BadInput(f"{self.server}: {trouble}; {gave_up}") from None
                await self._wait_after(trouble, retries)
                retries += 1
        return texts

    async def _wait_after(self, trouble: Trouble, retries: int) -> None:
        """At least as long as the server asks, plus full jitter: requests that failed together
        spread out.
        """
        backoff = min(LONGEST_BACKOFF, BACKOFF * 2 ** min(retries, 10))
        wait = trouble.wait + random.uniform(0, backoff)
        if time.monotonic() - self.reported > QUIET:
            self.reported = time.monotonic()
            self._say(f"{trouble}; trying again in {wait:.0f} s")
        await asyncio.sleep(wait)

    def _empty(self, body: dict, reason: str, n: int) -> list[Text]:
        """The n answers to a question that the server refuses."""
        self.counts["refused"] += n
        question = self._clean(body["messages"][-1]["content"][-100:])
        if question not in self.refused and len(self.refused) < NAMED:
            self._say(f"refuses the question {question!r}, whose answer stays empty: {reason}")
        self.refused[question] = reason
        return [Text("")] * n

    def _leave_out(self, name: str) -> None:
        self.left_out.add(name)
        self._say_once(name, f"takes no {name}, which is left out from now on: {OPTIONAL[name]}")

    def _say_once(self, kind: str, words: str) -> None:
        if kind not in self.said:
            self.said.add(kind)
            self._say(words)

    def _say(self, words: str) -> None:
        say(f"[{self.server}] {self.model}: {words}")

    async def _post(self, body: dict) -> list[Text]:
        """Texts of the choices, at least one. Raises Trouble, Learnt, or BadInput where asking again
        does not help.
        """
        prompt = sum(len(str(turn.get("content"))) for turn in body["messages"]) / CHARACTERS
        estimate = prompt + body.get("n", 1) * body.get(self.limit, 0)
        await self._wait_for_turn(estimate)
        response, content = await self._send(body)
        if not response.is_success:
            raise self._error(response, content, body)
        if len(content) > LARGEST_REPLY:
            raise BadInput(
                f"{self.server}: a reply is larger than {LARGEST_REPLY >> 20} MiB; is it an LLM's server?"
            )
        reply, texts = self._read(response, content, body)
        counted = tokens(reply.get("usage"))
        if counted:
            total = counted.get("prompt_tokens", 0) + counted.get("completion_tokens", 0)
            self.next_tokens += self.per_token * (total - estimate)
            self.counts.update(counted)
        self._count(texts, body)
        return texts

    async def _wait_for_turn(self, estimate: float) -> None:
        """Wait until the rates allow a request of so many tokens."""
        now = time.monotonic()
        start = max(now, self.next_request, self.next_tokens)
        self.next_request = start + self.per_request
        self.next_tokens = start + self.per_token * estimate
        await asyncio.sleep(start - now)

    async def _send(self, body: dict) -> tuple[httpx2.Response, bytes]:
        """The response to a request, with its content as far as it may be read."""
        content = bytearray()
        try:
            async with (
                asyncio.timeout(self.timeout),
                self.client.stream("POST", self.url, json=body) as response,
            ):
                self.answered = True
                most = LARGEST_REPLY if response.is_success else LARGEST_COMPLAINT
                # never decompressed: a small bomb would fill the memory
                async for chunk in response.aiter_raw():
                    content += chunk
                    if len(content) > most:
                        break
        except TimeoutError:
            raise Trouble(f"no whole reply within {self.timeout:g} s") from None
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise BadInput(
                f"{self.server}: {error}; expected an address like http://localhost:8000/v1"
            ) from None
        except httpx2.ConnectError as error:
            # A server that has answered before may be restarting; if it never has, the address is
            # more likely wrong.
            if self.answered:
                raise Trouble(f"no connection ({error})") from None
            raise BadInput(
                f"{self.server}: {error}; is the address right and the server running?"
            ) from None
        except httpx2.RequestError as error:  # cut, or not HTTP
            reason = str(error) or type(error).__name__
            raise Trouble(self._clean(f"connection lost ({reason})")) from None
        return response, bytes(content)

    def _read(
        self, response: httpx2.Response, content: bytes, body: dict
    ) -> tuple[dict, list[Text]]:
        """The reply in a content, and its texts."""
        longest = body.get(self.limit, 0) * LONGEST_TOKEN
        try:
            reply = json.loads(content)
            return reply, texts_of(reply, body.get("n", 1), longest)
        except BadInput as error:
            raise BadInput(f"{self.server}: {error}") from None
        except (ValueError, RecursionError):
            encoding = response.headers.get("Content-Encoding")
            encoded = f" (encoded by {encoding})" if encoding else ""
            raise Trouble(self._clean(f"the reply is not whole JSON{encoded}")) from None
        except Trouble as trouble:
            shown = content[:500].decode("utf-8", "replace")
            raise Trouble(self._clean(f"{trouble}: {shown}")) from None

    def _count(self, texts: list[Text], body: dict) -> None:
        """Count a reply, and those of its texts that were cut, filtered, or no answer."""
        self.replied = True
        self.counts["requests"] += 1
        for text in texts:
            if text.cut:
                # a reasoning model may use its budget up while it thinks
                self.counts["cut"] += not text.strip()
            elif not text.filtered:
                self.counts["unanswered"] += not text.strip()
            if text.shortened:
                self.counts["shortened"] += 1
                budget = f"its budget of {body.get(self.limit, 0)} tokens"
                words = f"a reply is longer than {budget} can be, and is cut there"
                self._say_once("shortened", words)
        filtered = sum(text.filtered for text in texts)
        if filtered:
            self._empty(body, "its reply was filtered", filtered)

    def _error(self, response: httpx2.Response, content: bytes, sent: dict) -> Exception:
        """The exception for an HTTP error."""
        status = response.status_code
        message, code, parameter = read_error(content)
        moved = response.headers.get("Location")
        where = f"(moved to {moved})" if moved else ""
        reason = self._clean(f"{message.strip() or response.reason_phrase} {where}")
        said = reason + content.decode("utf-8", "replace")  # with its codes and types
        of_a_question = OF_A_QUESTION.search(said) and not OF_AN_ACCOUNT.search(said)
        if status in (400, 403, 413, 422) and of_a_question:
            return Refused(f"{status} {reason}")
        if (status not in TEMPORARY and status < 500) or code == "insufficient_quota":
            if self._learn(sent, status, reason, parameter):
                return Learnt()
            is_usual = re.search(rf"/v\d\w*{ENDPOINT}\Z", self.url)
            ending = "; an address mostly ends with /v1" if status == 404 and not is_usual else ""
            return BadInput(f"{self.server} refuses the request: {status} {reason}{ending}")
        wait = seconds_of(response.headers.get("Retry-After"))
        if wait > LONGEST_WAIT:
            asked = f"it asks to wait {wait:.6g} s, so run again after that"
            return BadInput(f"{self.server}: {status} {reason}; {asked}")
        return Trouble(f"{status} {reason}", wait)

    def _learn(self, sent: dict, status: int, reason: str, parameter: Any) -> bool:
        """Adapt to a refusal; return whether there is another form of the request to try, now and
        from then on.
        """
        if status not in (400, 403, 422):
            return False
        forbidden = status == 403  # of log-probabilities; else of the key
        if not forbidden and "max_tokens" in sent and "max_completion_tokens" in reason:
            self.limit = "max_completion_tokens"
            return True
        for name in ["logprobs"] if forbidden else OPTIONAL:
            named = parameter == name or re.search(rf"\b{name}\b", reason)
            if name in sent and named and REFUSAL.search(reason):
                self._leave_out(name)
                return True  # one at a time: a message may name others that would do
        if "n" in sent and not forbidden:
            self.several = False
            return True
        return False

    def _clean(self, text: str) -> str:
        """One line of at most 300 characters, all printable, without the key."""
        text = printable(" ".join(text.split()))
        return (text.replace(self.key, "***") if self.key else text)[:300]


load = Engine


def run_apart(work: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns, run by an event loop in a thread of its own. Where one runs in this thread, as in a cell of
    Jupyter or in a web service, asyncio would refuse a second one. And a signal raises wherever this thread is: here it waits,
    while inside a request the exception would be taken for one of the server's, or replaced by one of the HTTP library.

    An interrupt cancels the coroutine, or every request would still be sent, and paid for.
    """
    started: concurrent.futures.Future = concurrent.futures.Future()
    interrupted = threading.Event()

    async def cancellable() -> Any:
        started.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        if interrupted.is_set():
            work.close()
            raise asyncio.CancelledError
        return await work

    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as thread:
        thread.submit(int).result()  # a thread that a signal finds half started is not waited for
        try:
            outcome = thread.submit(asyncio.run, cancellable())
            # by the second: a signal that comes just as a wait begins is seen at its end
            while not concurrent.futures.wait([outcome], timeout=1).done:
                pass
            return outcome.result()
        except (KeyboardInterrupt, SystemExit):
            interrupted.set()  # before the look at `started`: the thread looks the other way round
            if started.done():
                loop, task = started.result()
                with contextlib.suppress(RuntimeError):  # a closed loop: the coroutine has ended
                    loop.call_soon_threadsafe(task.cancel)
            raise


def read_error(content: bytes) -> tuple[str, Any, Any]:
    """(message, code, parameter) of an error's reply; a reply without a message is one."""
    message = content.decode("utf-8", "replace")
    with contextlib.suppress(ValueError, RecursionError, AttributeError, KeyError, TypeError):
        error = json.loads(content)
        error = error.get("error", error)
        if isinstance(error, str):
            return error, None, None
        if isinstance(error["message"], str):
            message = error["message"]
        return message, error.get("code"), error.get("param")
    return message, None, None


def read_key(named: str | None) -> str:
    """The key in the variable that the configuration names, or in KEY; empty for a server that wants none."""
    name = named or KEY
    key = os.environ.get(name, "").strip()
    if named is not None and not key:
        raise BadInput(
            f"{name}: not set, and the configuration names it as a server's key; export {name}=..."
        )
    # The HTTP library would quote the value in its own error.
    if not (key.isascii() and key.isprintable()):
        raise BadInput(f"{name}: holds characters that cannot stand in a header; set it again")
    return key


def request_seed(seed: int, number: int) -> int:
    """Seed of a prompt's request `number`; 31 bits, which every server accepts."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:4], "big") >> 1
