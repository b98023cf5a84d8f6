"""A server that means harm: whatever it replies, the sample step ends with samples or with one printable line.

Each reply is sent as bytes over a socket by a server on this machine, to the whole step. It becomes one of three things:
kept (a text like any other, which is counted even if no answer can be read from it), retried (asked for again, until
`max_retries` is used up), or refused (the step ends at once).
"""

import gzip
import json
import re
import socket
import socketserver
import threading
import time
import tracemalloc

import pytest
from conftest import ARITHMETIC

from orce import tasks
from orce.__main__ import main
from orce.artefacts import files
from orce.llm.engines import openai

KEY = "sk-do-not-show-me-anywhere"
RETRIES = 1
DEADLINE = 0.4  # seconds
CAP = 2**20  # bytes of a reply, lowered for these tests
NOT_JSON, NO_COMPLETION = "the reply is not whole JSON", "the reply is not a chat completion: "
NO_TEXT, LATE, LOST = "the reply has no choices with a text", "no whole reply within 0.4 s", r"connection lost \("
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b]52;c;cm0gLXJm\x07\x9b31m"


def http(body, status="200 OK", headers=(), length=True):
    body = body if isinstance(body, bytes) else body.encode()
    lines = [f"HTTP/1.1 {status}", *([f"Content-Length: {len(body)}"] if length else []), "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def chat(content, **choice):
    return http(json.dumps({"choices": [{"index": 0, "message": {"content": content}} | choice] * 2}))


def error(message, status="400 Bad Request", **headers):
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return http(json.dumps({"error": {"message": message}}), status, lines)


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
KEPT = {
    "half a surrogate pair": (chat("7 \ud83d"), "7 \ufffd"),
    "half a pair in bytes": (http(b'{"choices": [{"message": {"content": "7 \xed\xa0\xbd"}}]}'), "7 \ufffd"),
    "terminal escapes in the text": (chat(f"7 {ESCAPES}"), f"7 {ESCAPES}"),
    "NUL and line separators": (chat("7\x00\u2028\u2029\n8"), "7\x00\u2028\u2029\n8"),
    "a text of 250 kB for a budget of 16 tokens": (chat("(" * 250_000), "(" * 16 * 128),
    "a thousand choices": (http(json.dumps({"choices": [{"message": {"content": "7"}}] * 1000})), "7"),
    "a choice without content": (chat(None), ""),
    "parts for a text": (chat([{"type": "thinking", "thinking": "9"}, {"type": "text", "text": "7"}]), "7"),
    "JSON in UTF-16": (http(json.dumps({"choices": [{"message": {"content": "7"}}] * 2}).encode("utf-16")), "7"),
    "cookies": (chat("7").replace(b"\r\n", b"\r\n" + b"Set-Cookie: a=%s; Max-Age=x\r\n" % (b"b" * 4000) * 9, 1), "7"),
}
RETRIED = {
    "JSON nested too deeply": (http("[" * 100_000), NOT_JSON),
    "half of it": (http('{"choices": [{"index"'), NOT_JSON),
    "nothing": (http(""), NOT_JSON),
    "204": (http("", "204 No Content", length=False), NOT_JSON),
    "a page": (http("<html>Login</html>"), NOT_JSON),
    "events": (http('data: {"choices": []}\n\n', headers=["Content-Type: text/event-stream"]), NOT_JSON),
    "no UTF-8": (http(b'{"choices": "\xff\xfe"}'), NOT_JSON),
    "a number of 5,000 digits": (http('{"choices": %s}' % ("9" * 5000)), NOT_JSON),
    "a gzip bomb": (BOMB, "encoded by gzip"),
    "an unknown encoding": (http(b"\x28\xb5\x2f\xfd" * 9, headers=["Content-Encoding: zstd"]), "encoded by zstd"),
    "null": (http("null"), NO_COMPLETION + "null"),
    "Infinity": (http("Infinity"), NO_COMPLETION + "Infinity"),
    "a string": (http(f'"{ESCAPES}"'.encode()), NOT_JSON),
    "an error as a success": (http('{"error": {"message": "\x7f\u202eoverloaded"}}'), NO_COMPLETION),
    "choices as an object": (http('{"choices": {"index": 0}}'), NO_COMPLETION),
    "choices as a text": (http('{"choices": "7"}'), NO_COMPLETION),
    "no choices": (http('{"choices": []}'), NO_TEXT),
    "no message": (http('{"choices": [{}]}'), NO_COMPLETION),
    "NaN for an index": (http('{"choices": [{"index": NaN, "message": {"content": "7"}}]}'), NO_COMPLETION),
    "texts for indices": (chat("7", index="0"), NO_COMPLETION),
    "a number for a text": (chat(7), NO_TEXT),
    "false for a text": (chat(False), NO_TEXT),
    "shorter than it says": (http("{}", headers=["Content-Length: 99"], length=False), LOST),
    "longer than it says": (http('{"choices": []}', headers=["Content-Length: 3"], length=False), NOT_JSON),
    "two lengths": (http("{}", headers=["Content-Length: 9"]), LOST),
    "a negative length": (http("{}", headers=["Content-Length: -1"], length=False), LOST),
    "chunks without end marks": (http("5\r\n{}", headers=["Transfer-Encoding: chunked"], length=False), LOST),
    "a chunk of 2**68 bytes": (http("F" * 17 + "\r\n{}", headers=["Transfer-Encoding: chunked"], length=False), LOST),
    "a chunk size of a megabyte": (http("0" * 2**20, headers=["Transfer-Encoding: chunked"], length=False), LOST),
    "a body that drips": (endless(b" ", OPEN, 0.02), LATE),
    "headers that drip": (endless(b"x", HEAD, 0.02), LATE),
    "headers without end": (endless(b"X-More: " + b"x" * 1000 + b"\r\n", HEAD), LOST),
    "100 Continue without end": (endless(b"HTTP/1.1 100 Continue\r\n\r\n"), LATE),
    "silence": (endless(b"", pause=0.02), LATE),
    "hung up": (b"", LOST),
    "another protocol": (b"SSH-2.0-OpenSSH_9.2\r\n\x1b[31m", LOST),
    "another protocol to switch to": (http("", "101 Switching", ["Upgrade: x"], length=False), LOST),
    "status 999": (error("what?", "999 Odd"), "999 what"),
    "a line break in a header": (http("{}", headers=["X: a\x00\x1b[2Jb"]), LOST),
    "a wait below zero": (error("busy", "503 Busy", Retry_After="-1e9"), "503 busy"),
    "no wait": (error("busy", "503 Busy", Retry_After="nan"), "503 busy"),
    "a wait beyond the calendar": (error("busy", "503 Busy", Retry_After="Mon, 01 Jan 99999 00:00:00 GMT"), "503 busy"),
}
REFUSED = {
    "a body without end": (endless(b" " * 65536, OPEN), "a reply is larger than 1 MiB"),
    "a body of 10 TB": (endless(b"[" * 65536, http("", headers=[f"Content-Length: {10**13}"], length=False)), "larger than 1 MiB"),
    "chunks without end": (endless(b"1000\r\n" + b"{" * 4096 + b"\r\n", http("", headers=["Transfer-Encoding: chunked"], length=False)), "larger"),
    "a complaint without end": (endless(b"no " * 9999, http("", "400 Bad", length=False)), "400 no no no"),
    "a complaint nested too deeply": (http("[" * 19_000, "400 Bad"), r"400 \[\["),
    "terminal escapes": (error(f"no{ESCAPES}"), "400 no\ufffd]0;owned\ufffd"),
    "a changed direction": (error("\u202e\u2066ko lla\u200b"), "400 \ufffd\ufffdko lla\ufffd"),
    "lines of its own": (error("no\r\n[sample] 100/100 done\x85orce: all is well"), "400 no .*orce: all is well$"),
    "the key": (error(f"\x1b{KEY}\x1b"), r"400 \ufffd\*\*\*\ufffd$"),
    "a message that is a list": (error([["no"]]), r"400 .*\[\[.no.\]\]"),
    "a message that is null": (error(None), "400 .*null"),
    "half a pair as a message": (error("no \udc00"), "400 no \ufffd$"),
    "a redirect to a file": (http("", "302 Found", ["Location: file:///etc/passwd"]), "302 .*moved to file:///etc/passwd"),
    "a redirect to itself": (http("", "307 Again", ["Location: /v1/chat/completions"]), "307 .*moved to /v1"),
    "a redirect with escapes": (http("", "301 Moved", ["Location: http://a/\x85b"]), "301 .*moved to"),
    "a login": (error("who?", "401 No", WWW_Authenticate="Basic realm=x"), "401 who"),
    "a wait for ever": (error("busy", "429 Busy", Retry_After="inf"), "it asks to wait inf s"),
    "a wait of 1e308 s": (error("busy", "503 Busy", Retry_After="1e308"), r"it asks to wait 1e\+308 s"),
    "a wait until the year 9999": (error("busy", "503 Busy", Retry_After="Fri, 31 Dec 9999 23:59:59 GMT"), "it asks to wait"),
}  # fmt: skip


def test_there_are_enough_of_them():
    assert len(KEPT) + len(RETRIED) + len(REFUSED) >= 40


class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        head, _, body = self.receive().partition(b"\r\n\r\n")
        length = int(next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))[15:])
        while len(body) < length:
            body += self.request.recv(65536)
        self.server.requests += 1
        parts = [self.server.reply] if isinstance(self.server.reply, bytes) else self.server.reply()
        try:
            for part in parts:
                self.request.sendall(part)
                if self.server.done.is_set():
                    break
            self.request.shutdown(socket.SHUT_WR)
        except OSError:  # the client has hung up
            pass

    def receive(self):
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.request.recv(65536)
        return data


class Server(socketserver.ThreadingTCPServer):
    daemon_threads, block_on_close = True, False

    def __init__(self, reply):
        super().__init__(("127.0.0.1", 0), Handler)
        self.reply, self.requests, self.done = reply, 0, threading.Event()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def __exit__(self, *_):
        self.done.set()
        self.shutdown()
        self.server_close()


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
            address = f"http://127.0.0.1:{server.server_address[1]}/v1"
            options = {
                "label": "sample", "task": ARITHMETIC, "shots": None, "seed": 1, "engine": "openai", "samples": 1,
                "temperature": 1.0, "top_p": 1.0, "max_tokens": 16,
                "model": {"source": {"server": address, "model": "black-box"}, "dtype": "float32", "device": "cpu", "template_kwargs": {}},
            }  # fmt: skip
            out = tmp_path / "samples.jsonl"
            prompts = f"sft={tmp_path / 'sft.jsonl'}"
            code = main(["sample", "--settings", json.dumps(options), "--prompts", prompts, "--out", str(out)])
            said = capfd.readouterr()
            return code, said.out + said.err, files.read_jsonl(out) if out.exists() else [], server.requests

    return run


@pytest.mark.parametrize("name", KEPT)
def test_kept(name, step):
    reply, text = KEPT[name]
    code, said, records, requests = step(reply)
    assert (code, requests) == (0, 1), said
    assert [record["raw"] for record in records] == [[text]]
    assert records[0]["correct"] == [False], "it is counted, as a wrong answer"
    assert "\x1b" not in said


@pytest.mark.parametrize("name", RETRIED)
def test_retried(name, step):
    reply, words = RETRIED[name]
    assert_one_line(step(reply), rf"({words}).*; gave up \(retries: {RETRIES}\)$", 1 + RETRIES)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, step):
    reply, words = REFUSED[name]
    assert_one_line(step(reply), words, 1)


def assert_one_line(ended, words, expected):
    code, said, records, requests = ended
    assert code == 2 and records == [] and requests == expected, said
    started, line = said.splitlines()
    assert started == "[sample] starting the engine openai"
    assert line.startswith("orce sample: http://127.0.0.1:") and line.isprintable() and len(line) < 500
    assert KEY not in line
    assert re.search(words, line), line


def test_what_is_read_is_little(step):
    """A server that sends as fast as it can, and one whose few bytes would become many: neither fills the memory."""
    for reply in (endless(b" " * 2**16, OPEN), BOMB):
        tracemalloc.start()
        step(reply)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 16 * CAP
