"""A server that means harm: whatever it replies, the sample step ends with samples or with one printable line.

Each reply is sent as bytes over a socket by a server on this machine, to the whole step. It becomes one of three things:
kept (a text like any other, which is counted even if no answer can be read from it), retried (asked for again, until
`max_retries` is used up), or refused (the step ends at once).
"""

import gzip
import json
import re
import time
from http.server import BaseHTTPRequestHandler

import pytest
from conftest import ARITHMETIC, cases, on_cpu, sample_words, with_peak
from servers import Serving

from orce import tasks
from orce.__main__ import main
from orce.artefacts import files
from orce.llm.engines import openai

KEY = "sk-do-not-show-me-anywhere"
RETRIES = 1
DEADLINE = 0.4  # seconds
CAP = 2**20  # bytes of a reply, lowered for these tests
NOT_JSON, LATE, LOST = "the reply is not whole JSON", "no whole reply within 0.4 s", r"connection lost \("


def http(body, status="200 OK", headers=(), length=True):
    body = body if isinstance(body, bytes) else body.encode()
    lines = [f"HTTP/1.1 {status}", *([f"Content-Length: {len(body)}"] if length else []), "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def chat(content):
    return http(json.dumps({"choices": [{"index": 0, "message": {"content": content}}] * 2}))


def rows(outcome):
    """{name: (reply, what comes of it)} of the lines of hostile_replies.jsonl."""
    found = {}
    for row in cases("hostile_replies"):
        body = json.dumps(row["json"]) if "json" in row else row["text"]
        more = {key: row[key] for key in ("status", "headers", "length") if key in row}
        if row["outcome"] == outcome:
            found[row["name"]] = (http(body, **more), row["says"])
    return found


def endless(part, head=b"", pause=0.0):
    """Parts of a reply without end; the server stops when the client has hung up."""

    def parts():
        yield head
        while True:
            time.sleep(pause)
            yield part

    return parts


OPEN = http("", length=False)
BOMB = http(gzip.compress(b" " * 2**26), headers=["Content-Encoding: gzip"])
HEAD = b"HTTP/1.1 200 OK\r\n"
KEPT = rows("kept") | {
    "half a pair in bytes": (http(b'{"choices": [{"message": {"content": "7 \xed\xa0\xbd"}}]}'), "7 \ufffd"),
    "a text of 250 kB for a budget of 16 tokens": (chat("(" * 250_000), "(" * 16 * 128),
    "a thousand choices": (http(json.dumps({"choices": [{"message": {"content": "7"}}] * 1000})), "7"),
    "JSON in UTF-16": (http(json.dumps({"choices": [{"message": {"content": "7"}}] * 2}).encode("utf-16")), "7"),
    "cookies": (chat("7").replace(b"\r\n", b"\r\n" + b"Set-Cookie: a=%s; Max-Age=x\r\n" % (b"b" * 4000) * 9, 1), "7"),
}
RETRIED = rows("retried") | {
    "JSON nested too deeply": (http("[" * 100_000), NOT_JSON),
    "no UTF-8": (http(b'{"choices": "\xff\xfe"}'), NOT_JSON),
    "a number of 5,000 digits": (http('{"choices": %s}' % ("9" * 5000)), NOT_JSON),
    "a gzip bomb": (BOMB, "encoded by gzip"),
    "an unknown encoding": (http(b"\x28\xb5\x2f\xfd" * 9, headers=["Content-Encoding: zstd"]), "encoded by zstd"),
    "a chunk size of a megabyte": (http("0" * 2**20, headers=["Transfer-Encoding: chunked"], length=False), LOST),
    "a body that drips": (endless(b" ", OPEN, 0.02), LATE),
    "headers that drip": (endless(b"x", HEAD, 0.02), LATE),
    "headers without end": (endless(b"X-More: " + b"x" * 1000 + b"\r\n", HEAD), LOST),
    "100 Continue without end": (endless(b"HTTP/1.1 100 Continue\r\n\r\n"), LATE),
    "silence": (endless(b"", pause=0.02), LATE),
    "hung up": (b"", LOST),
    "another protocol": (b"SSH-2.0-OpenSSH_9.2\r\n\x1b[31m", LOST),
}
REFUSED = rows("refused") | {
    "a body without end": (endless(b" " * 65536, OPEN), "a reply is larger than 1 MiB"),
    "a body of 10 TB": (endless(b"[" * 65536, http("", headers=[f"Content-Length: {10**13}"], length=False)), "larger than 1 MiB"),
    "chunks without end": (endless(b"1000\r\n" + b"{" * 4096 + b"\r\n", http("", headers=["Transfer-Encoding: chunked"], length=False)), "larger"),
    "a complaint without end": (endless(b"no " * 9999, http("", "400 Bad", length=False)), "400 no no no"),
    "a complaint nested too deeply": (http("[" * 19_000, "400 Bad"), r"400 \[\["),
}  # fmt: skip


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests += 1
        for part in [self.server.reply] if isinstance(self.server.reply, bytes) else self.server.reply():
            self.wfile.write(part)
            if not self.server.thread.is_alive():  # the client has got enough, and the server is stopped
                break


class Server(Serving):
    def __init__(self, reply):
        self.reply, self.requests = reply, 0
        super().__init__(Handler)


@pytest.fixture
def step(tmp_path, monkeypatch, capfd, direct):
    """Runs `orce sample` on one question; returns its exit code, what it said, the samples and the requests."""
    monkeypatch.setattr(openai, "BACKOFF", 0.01)
    monkeypatch.setattr(openai, "LARGEST_REPLY", CAP)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    speed = {"timeout": DEADLINE, "max_retries": RETRIES, "concurrency": 1}
    monkeypatch.setenv("ORCE_SPEED", json.dumps({"answers": speed}))
    files.write_jsonl(tmp_path / "sft.jsonl", tasks.get(ARITHMETIC).load({}, "validation", 0)[:1])

    def run(reply):
        with Server(reply) as server:
            model = on_cpu(server=f"{server.origin}/v1", model="black-box")
            out = tmp_path / "samples.jsonl"
            code = main(sample_words(model, "openai", tmp_path / "sft.jsonl", out, max_tokens=16))
        said = "".join(capfd.readouterr())
        return code, said, files.read_jsonl(out) if out.exists() else [], server.requests

    return run


@pytest.mark.parametrize("name", KEPT)
def test_a_text_like_any_other_is_kept_and_counted(name, step):
    reply, text = KEPT[name]
    code, said, records, requests = step(reply)
    assert (code, requests) == (0, 1), said
    assert [record["raw"] for record in records] == [[text]]
    assert records[0]["correct"] == [False], "it is counted, as a wrong answer"
    assert "\x1b" not in said


GAVE_UP = rf".*; gave up \(retries: {RETRIES}\)$"


@pytest.mark.parametrize(("reply", "words", "asked"), [
    *(pytest.param(reply, f"({words}){GAVE_UP}", 1 + RETRIES, id=name) for name, (reply, words) in RETRIED.items()),
    *(pytest.param(reply, words, 1, id=name) for name, (reply, words) in REFUSED.items()),
])  # fmt: skip
def test_what_cannot_be_read_is_asked_for_again_and_a_refusal_or_a_reply_without_end_is_not(reply, words, asked, step):
    code, said, records, requests = step(reply)
    assert code == 2 and records == [] and requests == asked, said
    started, line = said.splitlines()
    assert started == "[sample] starting the engine openai"
    assert line.startswith("orce sample: http://127.0.0.1:") and line.isprintable() and len(line) < 500
    assert KEY not in line
    assert re.search(words, line), line


def test_what_is_read_is_little(step):
    """A server that sends as fast as it can, and one whose few bytes would become many: neither fills the memory."""
    for reply in (endless(b" " * 2**16, OPEN), BOMB):
        assert with_peak(step, reply)[1] < 16 * CAP
