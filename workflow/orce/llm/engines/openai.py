"""Sampling from an OpenAI-compatible server: the answer LLM as a black box, whoever runs it.

httpx2 is the transport and tenacity retries requests; this module decides what to send, which errors are temporary, and
what to tell the user. A reply is a stranger's: its size and its whole time are capped, it is never decompressed, no
redirect is followed, no cookie kept, and no control character of it is printed. The key is read from OPENAI_API_KEY, sent
in one request header, and removed from every message of the server. A killed step loses at most the current chunk
(orce.runtime.files.in_chunks).
"""

import asyncio
import email.utils
import hashlib
import http.cookiejar
import json
import operator
import os
import time

import httpx2
import tenacity

from orce.llm.chat import Messages
from orce.runtime.files import BadInput
from orce.runtime.progress import printable, say

CONCURRENCY = 16
TIMEOUT = 600.0  # seconds from the first to the last byte; a busy server can take minutes for a long answer
RETRIES = 10
TEMPORARY = {408, 409, 425, 429}  # and every 5xx
BACKOFF, LONGEST_BACKOFF = 0.5, 60.0
LONGEST_WAIT = 600.0  # seconds; the most that a server may ask for
LARGEST_REPLY, LARGEST_COMPLAINT = 2**24, 20_000  # bytes; 100 answers of 8,192 tokens take less than 2**23
QUIET = 30.0  # seconds between two lines about a server in trouble


class Trouble(Exception):
    """A request that failed and may succeed later. `wait` is what the server asks for, in seconds."""

    def __init__(self, message: str, wait: float = 0.0):
        super().__init__(message)
        self.wait = wait


class Rejected(BadInput):
    """The server refuses the request and would refuse it again."""

    def __init__(self, message: str, status: int, reason: str):
        super().__init__(message)
        self.status, self.reason = status, reason


def load(settings: dict, longest: int | None = None) -> "Engine":
    """An engine for settings["source"] = {server, model}; `longest` is ignored, as the server knows its own limit."""
    source = settings["source"]
    if not {"server", "model"} <= set(source):
        raise BadInput(f"models.*.source: the engine openai needs {{server, model}}, this one is {source}")
    client = Client(source["server"], settings.get("timeout") or TIMEOUT, settings.get("max_retries", RETRIES), _key())
    return Engine(
        client, source["model"], settings.get("concurrency") or CONCURRENCY, settings.get("template_kwargs") or {}
    )


def _key() -> str:
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    # The HTTP library would quote the value in its own error.
    if not (key.isascii() and key.isprintable()):
        raise BadInput("OPENAI_API_KEY: holds characters that cannot stand in a header; set it again")
    return key


class Engine:
    """Samples texts from one model of one server, `concurrency` requests at a time."""

    def __init__(self, client: "Client", model: str, concurrency: int, template_kwargs: dict):
        self.client, self.model, self.concurrency = client, model, concurrency
        self.template_kwargs = template_kwargs
        self.limit, self.several = "max_tokens", True  # what the server accepts, as far as we know

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
        common: dict = {"model": self.model, "temperature": temperature}
        # Some servers refuse unknown keys, or temperature together with top_p: send only what differs from the default.
        if top_p < 1:
            common["top_p"] = top_p
        if self.template_kwargs:
            common["chat_template_kwargs"] = self.template_kwargs
        distinct = 1 if temperature == 0 else n
        bodies = [common | {"messages": messages} for messages in prompts]
        try:
            texts = asyncio.run(self._sample_all(bodies, distinct, max_tokens, seeds))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        return [row * n if temperature == 0 else row for row in texts]

    def close(self) -> None:
        """Nothing to release: every call of generate closes its connections."""

    async def _sample_all(self, bodies: list[dict], n: int, max_tokens: int, seeds: list[int]) -> list[list[str]]:
        texts: list[list[str]] = [[] for _ in bodies]
        todo = iter(range(len(bodies)))

        async def work() -> None:
            for i in todo:
                texts[i] = await self._sample(http, bodies[i], n, max_tokens, seeds[i])

        async with self.client.connections() as http, asyncio.TaskGroup() as group:
            for _ in range(min(self.concurrency, len(bodies))):
                group.create_task(work())
        return texts

    async def _sample(self, http: httpx2.AsyncClient, body: dict, n: int, max_tokens: int, seed: int) -> list[str]:
        """`n` texts, in as many requests as needed: servers may return fewer choices than requested."""
        texts: list[str] = []
        number = 0
        while len(texts) < n:
            missing = n - len(texts) if self.several else 1
            sent = body | {self.limit: max_tokens, "seed": request_seed(seed, number)}
            if missing > 1:
                sent["n"] = missing
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
        if refusal.status not in (400, 422):
            return False
        if "max_tokens" in sent and "max_completion_tokens" in refusal.reason:
            self.limit = "max_completion_tokens"
            return True
        if "n" in sent:
            self.several = False
            return True
        return False


def request_seed(seed: int, number: int) -> int:
    """Seed of a prompt's request `number`; 31 bits, which every server accepts."""
    digest = hashlib.sha256(f"{seed}/{number}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


class Client:
    """Chat completions of one server; retries requests that failed temporarily."""

    def __init__(self, server: str, timeout: float, max_retries: int, key: str):
        self.server, self.timeout, self.max_retries, self.key = server, timeout, max_retries, key
        self.url = server.rstrip("/") + "/chat/completions"
        self.answered = False
        self.told = time.monotonic()

    def connections(self) -> httpx2.AsyncClient:
        # Redirects stay off (httpx2's default): they would take the key to another host.
        headers = {"User-Agent": "orce", "Accept-Encoding": "identity"}
        headers |= {"Authorization": f"Bearer {self.key}"} if self.key else {}
        no_cookies = http.cookiejar.CookieJar(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))
        limits = httpx2.Limits(max_connections=None)
        # No timeout between two bytes: `_post` limits the whole time, which a server that drips would stretch for ever.
        return httpx2.AsyncClient(headers=headers, timeout=None, limits=limits, cookies=no_cookies)

    async def complete(self, http: httpx2.AsyncClient, body: dict) -> list[str]:
        """Texts of the choices, at least one. Raises Rejected for a refusal, BadInput when it gives up."""
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(Trouble),
            stop=tenacity.stop_after_attempt(self.max_retries + 1),
            # Wait at least as long as the server asks, plus full jitter: requests that failed together spread out.
            wait=tenacity.wait_exception(lambda error: getattr(error, "wait", 0.0))
            + tenacity.wait_random_exponential(multiplier=BACKOFF, max=LONGEST_BACKOFF),
            before_sleep=self._tell,
            reraise=True,
        )
        try:
            return await retrying(self._post, http, body)
        except Trouble as trouble:
            raise BadInput(f"{self.server}: {trouble}; gave up (retries: {self.max_retries})") from None

    def _tell(self, state: tenacity.RetryCallState) -> None:
        now = time.monotonic()
        if state.outcome and state.next_action and now - self.told > QUIET:
            self.told = now
            say(f"[{self.server}] {state.outcome.exception()}; trying again in {state.next_action.sleep:.0f} s")

    async def _post(self, http: httpx2.AsyncClient, body: dict) -> list[str]:
        try:
            async with asyncio.timeout(self.timeout), http.stream("POST", self.url, json=body) as response:
                self.answered = True
                content = await _read(response, LARGEST_REPLY if response.is_success else LARGEST_COMPLAINT)
        except TimeoutError:
            raise Trouble(f"no whole reply within {self.timeout:g} s") from None
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise BadInput(f"{self.server}: {error}; expected an address like http://localhost:8000/v1") from None
        except httpx2.ConnectError as error:
            raise self._unreachable(error) from None
        except httpx2.RequestError as error:  # cut, or not HTTP
            raise Trouble(self._clean(f"connection lost ({str(error) or type(error).__name__})")) from None
        if not response.is_success:
            raise self._error(response, content)
        if len(content) > LARGEST_REPLY:
            raise BadInput(f"{self.server}: a reply is larger than {LARGEST_REPLY >> 20} MiB; is it an LLM's server?")
        try:
            return texts_of(_json(content))
        except ValueError:
            how = response.headers.get("Content-Encoding")
            raise Trouble(self._clean(f"the reply is not whole JSON{f' (encoded by {how})' if how else ''}")) from None
        except Trouble as trouble:
            shown = content[:500].decode("utf-8", "replace")
            raise Trouble(self._clean(f"{trouble}: {shown}")) from None

    def _error(self, response: httpx2.Response, content: bytes) -> Exception:
        """The exception for an HTTP error: Trouble (retry), Rejected, or BadInput (run again later)."""
        status = response.status_code
        code, reason = self._complaint(response, content)
        if (status not in TEMPORARY and status < 500) or code == "insufficient_quota":
            return Rejected(f"{self.server} refuses the request: {status} {reason}", status, reason)
        wait = seconds_of(response.headers.get("Retry-After"))
        if wait > LONGEST_WAIT:
            return BadInput(f"{self.server}: {status} {reason}; it asks to wait {wait:.6g} s, so run again after that")
        return Trouble(f"{status} {reason}", wait)

    def _complaint(self, response: httpx2.Response, content: bytes) -> tuple[str | None, str]:
        """The server's error code and message, on one line."""
        code, text = None, content.decode("utf-8", "replace")
        try:
            value = _json(content)
            value = value.get("error", value)
            code, said = (None, value) if isinstance(value, str) else (value.get("code"), value["message"])
            text = said if isinstance(said, str) else text
        except (ValueError, AttributeError, KeyError):
            pass  # report the body as it is
        where = response.headers.get("Location")
        words = f"{text.strip() or response.reason_phrase} {f'(moved to {where})' if where else ''}"
        return code, self._clean(words)

    def _clean(self, text: str) -> str:
        """One line of at most 300 characters, all printable, without the key."""
        text = printable(" ".join(text.split()))
        return (text.replace(self.key, "***") if self.key else text)[:300]

    def _unreachable(self, error: Exception) -> Exception:
        # A server that has answered before may be restarting; if it never has, the address is more likely wrong.
        if self.answered:
            return Trouble(f"no connection ({error})")
        return BadInput(f"{self.server}: {error}; is the address right and the server running?")


async def _read(response: httpx2.Response, limit: int) -> bytes:
    """The body as sent; reading stops soon after `limit` bytes. Never decompressed: a small bomb would fill the memory."""
    content = bytearray()
    async for part in response.aiter_raw():
        content += part
        if len(content) > limit:
            break
    return bytes(content)


def _json(content: bytes):
    """Raises ValueError for what is not JSON, too deep for Python's parser included."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def texts_of(reply: dict) -> list[str]:
    """Texts of a chat completion in the order of its choices; no content (filtered, cut short) is an empty text."""
    try:
        choices = sorted(reply["choices"], key=lambda choice: operator.index(choice.get("index") or 0))
        texts = [choice["message"].get("content") for choice in choices]
    except (KeyError, TypeError, AttributeError):
        raise Trouble("the reply is no chat completion") from None
    texts = ["" if text is None else text for text in texts]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise Trouble("the reply has no choices with a text")
    return [whole(text) for text in texts]


def whole(text: str) -> str:
    r"""The text with U+FFFD for each half of a surrogate pair ("\ud83d" alone), which no file could hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def seconds_of(retry_after: str | None) -> float:
    """Seconds that a Retry-After header asks for, given as a number or as a date."""
    try:
        return max(0.0, float(retry_after or 0))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(retry_after or "").timestamp() - time.time())
    except (TypeError, ValueError, OverflowError, OSError):  # no date, or one beyond the calendar
        return 0.0
