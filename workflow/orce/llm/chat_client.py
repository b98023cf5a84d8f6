"""Chat completions of one OpenAI-compatible server over HTTP.

httpx2 is the transport and tenacity retries requests. A reply is a stranger's: its size and its whole time are capped, it
is never decompressed, no redirect is followed, no cookie kept, and no control character of it is printed. The key is sent
in one request header, and removed from every message of the server.
"""

import asyncio
import email.utils
import functools
import http.cookiejar
import json
import time

import httpx2
import tenacity

from orce.errors import BadInput
from orce.llm.account import Account, tokens
from orce.llm.completion import Trouble, cut_short, texts_of
from orce.llm.engines import Text
from orce.llm.pace import Pace
from orce.runtime.process import printable, say

TEMPORARY = {408, 409, 425, 429}  # and every 5xx
BACKOFF, LONGEST_BACKOFF = 0.5, 60.0
LONGEST_WAIT = 600.0  # seconds; the most that a server may ask for
LARGEST_REPLY, LARGEST_COMPLAINT = 2**24, 20_000  # bytes; 100 answers of 8,192 tokens take less than 2**23
QUIET = 30.0  # seconds between two lines about a server in trouble
CHARACTERS = 4  # of a token, for the estimate before a request


trusted = functools.cache(httpx2.create_ssl_context)  # reads the certificates once, not for each chunk of questions


class Rejected(BadInput):
    """The server refuses the request and would refuse it again."""

    def __init__(self, message: str, status: int, reason: str, parameter: str | None = None):
        super().__init__(message)
        self.status, self.reason, self.parameter = status, reason, parameter


class Client:
    """Chat completions of one server; retries requests that failed temporarily."""

    def __init__(self, server: str, timeout: float, max_retries: int, key: str, pace: Pace | None = None):
        self.server, self.timeout, self.max_retries, self.key = server, timeout, max_retries, key
        self.pace, self.account = pace or Pace(None, None), Account()
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
        return httpx2.AsyncClient(verify=trusted(), headers=headers, timeout=None, limits=limits, cookies=no_cookies)

    async def complete(self, http: httpx2.AsyncClient, body: dict) -> list[Text]:
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

    async def _post(self, http: httpx2.AsyncClient, body: dict) -> list[Text]:
        estimate = estimated(body)
        await self.pace.turn(estimate)
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
            reply = _json(content)
            texts = texts_of(reply)
        except ValueError:
            how = response.headers.get("Content-Encoding")
            raise Trouble(self._clean(f"the reply is not whole JSON{f' (encoded by {how})' if how else ''}")) from None
        except Trouble as trouble:
            shown = content[:500].decode("utf-8", "replace")
            raise Trouble(self._clean(f"{trouble}: {shown}")) from None
        usage = reply.get("usage")
        counted = tokens(usage)
        if counted:
            self.pace.correct(estimate, counted.get("prompt_tokens", 0) + counted.get("completion_tokens", 0))
        self.account.add(usage, cut=sum(map(cut_short, reply["choices"])))
        return texts

    def _error(self, response: httpx2.Response, content: bytes) -> Exception:
        """The exception for an HTTP error: Trouble (retry), Rejected, or BadInput (run again later)."""
        status = response.status_code
        code, reason, parameter = self._complaint(response, content)
        if (status not in TEMPORARY and status < 500) or code == "insufficient_quota":
            return Rejected(f"{self.server} refuses the request: {status} {reason}", status, reason, parameter)
        wait = seconds_of(response.headers.get("Retry-After"))
        if wait > LONGEST_WAIT:
            return BadInput(f"{self.server}: {status} {reason}; it asks to wait {wait:.6g} s, so run again after that")
        return Trouble(f"{status} {reason}", wait)

    def _complaint(self, response: httpx2.Response, content: bytes) -> tuple[str | None, str, str | None]:
        """The server's error code, its message on one line, and the parameter that it names."""
        code, parameter, text = None, None, content.decode("utf-8", "replace")
        try:
            value = _json(content)
            value = value.get("error", value)
            code, said = (None, value) if isinstance(value, str) else (value.get("code"), value["message"])
            text = said if isinstance(said, str) else text
            parameter = value.get("param") if isinstance(value, dict) else None
        except (ValueError, AttributeError, KeyError):
            pass  # report the body as it is
        where = response.headers.get("Location")
        words = f"{text.strip() or response.reason_phrase} {f'(moved to {where})' if where else ''}"
        return code, self._clean(words), parameter if isinstance(parameter, str) else None

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


def estimated(body: dict) -> float:
    """Tokens that a request may take: its characters / 4, and the whole budget of its answers."""
    prompt = sum(len(str(turn.get("content"))) for turn in body["messages"]) / CHARACTERS
    return prompt + body.get("n", 1) * (body.get("max_tokens") or body.get("max_completion_tokens") or 0)


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
