"""Sampling from an OpenAI-compatible server: the answer LLM as a black box, whoever runs it.

The key is read from OPENAI_API_KEY, goes into one request header, and is taken out of every message of the server's.
Requests fail for a while as a matter of course: those that may succeed later are sent again, the others end the step
with one line. A killed step loses no more than the chunk it was in (orce.runtime.files.in_chunks).
"""

import email.utils
import hashlib
import http.client
import json
import os
import queue
import random
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request

from orce.runtime.files import BadInput
from orce.runtime.progress import say

CONCURRENCY = 16
TIMEOUT = 600.0  # seconds without a byte; a long answer of a busy server takes minutes
RETRIES = 10
TEMPORARY = {408, 409, 425, 429}  # and every 5xx
BACKOFF, LONGEST_BACKOFF = 0.5, 60.0
LONGEST_WAIT = 600.0  # of those a server may ask for
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
    source = settings["source"]
    if not {"server", "model"} <= set(source):
        raise BadInput(f"models.*.source: the engine openai needs {{server, model}}, this one is {source}")
    client = Client(source["server"], settings.get("timeout") or TIMEOUT, settings.get("max_retries", RETRIES), _key())
    return Engine(
        client, source["model"], settings.get("concurrency") or CONCURRENCY, settings.get("template_kwargs") or {}
    )


def _key() -> str:
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    # http.client would name the value in its own complaint.
    if not (key.isascii() and key.isprintable()):
        raise BadInput("OPENAI_API_KEY: holds characters that cannot stand in a header; set it again")
    return key


class Engine:
    def __init__(self, client: "Client", model: str, concurrency: int, template_kwargs: dict):
        self.client, self.model, self.concurrency = client, model, concurrency
        self.template_kwargs = template_kwargs
        self.limit, self.several = "max_tokens", True  # what the server understands, as far as we have seen

    def generate(self, prompts, n, temperature, max_tokens, seeds, top_p=1.0) -> list[list[str]]:
        """See orce.llm.engines. temperature 0 is greedy: one text, n times."""
        common = {"model": self.model, "temperature": temperature}
        # Some servers refuse what they do not know or want one of temperature and top_p: say only what is meant.
        if top_p < 1:
            common["top_p"] = top_p
        if self.template_kwargs:
            common["chat_template_kwargs"] = self.template_kwargs
        drawn = 1 if temperature == 0 else n

        def sample(i: int) -> list[str]:
            return self._sample(common | {"messages": prompts[i]}, drawn, max_tokens, seeds[i])

        texts = in_parallel(sample, len(prompts), self.concurrency)
        return [row * n if temperature == 0 else row for row in texts]

    def close(self) -> None:
        """Nothing to let go of: every request had a connection of its own."""

    def _sample(self, body: dict, n: int, max_tokens: int, seed: int) -> list[str]:
        """`n` texts, by as many requests as it takes: servers may return fewer choices than were asked for."""
        texts: list[str] = []
        number = 0
        while len(texts) < n:
            wanted = n - len(texts) if self.several else 1
            sent = body | {self.limit: max_tokens, "seed": request_seed(seed, number)}
            if wanted > 1:
                sent["n"] = wanted
            try:
                texts += self.client.complete(sent)[:wanted]
            except Rejected as refusal:
                if not self._learn(sent, refusal):
                    raise
                continue
            number += 1
        return texts

    def _learn(self, sent: dict, refusal: Rejected) -> bool:
        """Whether the request can be put in a way that this server may understand; it is remembered for the next."""
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
    """Seed of a prompt's request `number`; 31 bits, which every server takes."""
    digest = hashlib.sha256(f"{seed}/{number}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def in_parallel(work, count: int, workers: int) -> list:
    """[work(0), ..., work(count - 1)] by at most `workers` threads. The first error is raised at once.

    The threads are daemons: a step that ends does not wait for requests whose answers nobody will read.
    """
    todo: queue.SimpleQueue = queue.SimpleQueue()
    done: queue.SimpleQueue = queue.SimpleQueue()
    failed = threading.Event()
    for i in range(count):
        todo.put(i)

    def run():
        while not failed.is_set():
            try:
                i = todo.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((i, work(i), None))
            except Exception as error:  # noqa: BLE001 - raised again below, in the caller's thread
                failed.set()
                done.put((i, None, error))

    for _ in range(min(workers, count)):
        threading.Thread(target=run, daemon=True).start()
    results = [None] * count
    for _ in range(count):
        i, value, error = done.get()
        if error is not None:
            raise error
        results[i] = value
    return results


class Client:
    """Chat completions of one server, sent again while that may help."""

    def __init__(self, server: str, timeout: float, max_retries: int, key: str):
        self.server, self.timeout, self.max_retries, self.key = server, timeout, max_retries, key
        self.url = server.rstrip("/") + "/chat/completions"
        self.opener = urllib.request.build_opener(StayHere)
        self.answered = False
        self.told = time.monotonic()

    def complete(self, body: dict) -> list[str]:
        """Texts of the choices, at least one."""
        for attempt in range(self.max_retries + 1):
            try:
                return texts_of(self._post(body))
            except Trouble as trouble:
                wait, why = trouble.wait, self._clean(str(trouble))
            if wait > LONGEST_WAIT:
                raise BadInput(f"{self.server}: {why}; it asks to wait {wait:.0f} s, so run again after that")
            if attempt < self.max_retries:
                self._pause(wait, why, attempt)
        raise BadInput(f"{self.server}: {why}; gave up (retries: {self.max_retries})")

    def _pause(self, wait: float, why: str, attempt: int) -> None:
        # Full jitter: requests that failed together must not come back together. The server's own wait is a minimum.
        wait += random.uniform(0, min(LONGEST_BACKOFF, BACKOFF * 2**attempt))
        now = time.monotonic()
        if now - self.told > QUIET:
            self.told = now
            say(f"[{self.server}] {why}; trying again in {wait:.0f} s")
        time.sleep(wait)

    def _post(self, body: dict) -> dict:
        headers = {"Content-Type": "application/json", "User-Agent": "orce"}  # some gateways block Python-urllib
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(self.url, json.dumps(body).encode(), headers)
        try:
            with self.opener.open(request, timeout=self.timeout) as response:
                self.answered = True
                return json.loads(response.read())
        except urllib.error.HTTPError as error:
            self.answered = True
            raise self._judged(error) from None
        except urllib.error.URLError as error:
            raise self._unreachable(error.reason) from None
        except (OSError, http.client.HTTPException) as error:  # cut, timed out, or no HTTP
            raise Trouble(f"connection lost ({str(error) or type(error).__name__})") from None
        except ValueError:
            raise Trouble("the reply is not whole JSON") from None

    def _judged(self, error: urllib.error.HTTPError) -> Exception:
        """What an HTTP error means for the request: Trouble or Rejected."""
        code, reason = self._complaint(error)
        message = f"{error.code} {reason}"
        if (error.code in TEMPORARY or error.code >= 500) and code != "insufficient_quota":
            return Trouble(message, seconds_of(error.headers.get("Retry-After")))
        return Rejected(f"{self.server} refuses the request: {message}", error.code, reason)

    def _complaint(self, error: urllib.error.HTTPError) -> tuple[str | None, str]:
        """The server's error code and its own words on one line."""
        code, text = None, ""
        try:
            text = error.read(20_000).decode("utf-8", "replace")
            value = json.loads(text)
            value = value.get("error", value)
            code, text = (None, value) if isinstance(value, str) else (value.get("code"), value["message"])
        except (OSError, http.client.HTTPException, ValueError, AttributeError, KeyError):
            pass  # then the body as it stands
        where = error.headers.get("Location")
        words = " ".join(f"{text or error.reason} {f'(moved to {where})' if where else ''}".split())
        return code, self._clean(words)

    def _clean(self, text: str) -> str:
        return (text.replace(self.key, "***") if self.key else text)[:300]

    def _unreachable(self, reason) -> Exception:
        hopeless = isinstance(reason, ssl.SSLCertVerificationError)
        # A server that has answered may be starting again; one that never has is more likely a wrong address.
        if hopeless or (not self.answered and isinstance(reason, (ConnectionRefusedError, socket.gaierror))):
            return BadInput(f"{self.server}: {reason}; is the address right and the server running?")
        return Trouble(f"no connection ({reason})")


class StayHere(urllib.request.HTTPRedirectHandler):
    """Redirects are errors: urllib would turn POST into GET and take the key to another host."""

    def redirect_request(self, *_):
        return None


def texts_of(reply: dict) -> list[str]:
    """Texts of a chat completion in the order of its choices; no content (filtered, cut short) is an empty text."""
    try:
        choices = sorted(reply["choices"], key=lambda choice: choice.get("index") or 0)
        texts = [choice["message"].get("content") or "" for choice in choices]
    except (KeyError, TypeError, AttributeError):
        raise Trouble(f"the reply is no chat completion: {json.dumps(reply)[:500]}") from None
    if not texts or not all(isinstance(text, str) for text in texts):
        raise Trouble("the reply has no choices with a text")
    return texts


def seconds_of(retry_after: str | None) -> float:
    """Seconds that a Retry-After header asks for, given as a number or as a date."""
    try:
        return max(0.0, float(retry_after or 0))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return 0.0
