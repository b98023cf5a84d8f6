"""The engine for OpenAI-compatible servers, against a real server on this machine that misbehaves on purpose."""

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from servers import Serving

from orce.artefacts import files
from orce.errors import BadInput
from orce.llm.engines import openai

KEY = "sk-do-not-show-me-anywhere"
TROUBLES = ("too many", "broken server", "cut", "broken json", "fewer")


class Server(Serving):
    """Chat completions whose texts, or messages, depend on prompt, seed and choice alone.

    `trouble(body)` names what goes wrong, or is a reply: (status, headers, value).
    """

    def __init__(self, text=None, trouble=lambda body: None, delay=0.0):
        self.text, self.trouble, self.delay = text or echo, trouble, delay
        self.keys, self.busy, self.busiest = set(), 0, 0
        super().__init__(Handler)

    def handle_error(self, *_):
        """A client that has gone away, as one does when another of its requests was refused, is not worth a traceback."""

    def enter(self, body, key):
        with self.lock:
            self.busy += 1
            self.busiest = max(self.busiest, self.busy)
            self.bodies.append(body)
            self.keys.add(key)
            return self.trouble(body)

    def leave(self):
        with self.lock:
            self.busy -= 1

    def asked(self):
        return [body["messages"][-1]["content"] for body in self.bodies]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        trouble = self.server.enter(body, self.headers.get("Authorization"))
        time.sleep(self.server.delay)
        self.server.leave()  # before the reply: with it, the client may send its next request
        if self.path != "/v1/chat/completions":
            trouble = (404, {}, {"error": {"message": f"no such path: {self.path}"}})
        n = body.get("n", 1)
        count = {"fewer": max(1, n // 2)}.get(trouble, n) if isinstance(trouble, str) else n
        said = [self.server.text(body, i) for i in range(count)]
        messages = [one if isinstance(one, dict) else {"content": one} for one in said]
        choices = [{"index": i, "message": message} for i, message in enumerate(messages)]
        self.reply(json.dumps({"choices": choices[::-1]}).encode(), trouble)

    def reply(self, whole, trouble):
        if isinstance(trouble, tuple):
            status, headers, value = trouble
            return self.send(status, json.dumps(value).encode(), headers)
        if trouble == "too many":
            return self.send(429, b'{"error": {"message": "slow down"}}', {"Retry-After": "0"})
        if trouble == "broken server":
            return self.send(500, b"<html>Internal Server Error</html>")
        if trouble == "broken json":
            return self.send(200, whole[: len(whole) // 2])
        if trouble == "cut":
            return self.send(200, whole, written=len(whole) // 2)
        return self.send(200, whole)

    def send(self, status, content, headers=None, written=None):
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(content))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content[:written])

    def log_message(self, *_):
        pass


def echo(body, i):
    return f"{body['messages'][-1]['content']}|{body.get('seed')}|{i}"


def at_random(share, seed=0, troubles=TROUBLES):
    dice = random.Random(seed)
    return lambda body: dice.choice(troubles) if dice.random() < share else None


def at_first(*troubles):
    """The first requests go wrong in these ways, and then no more."""
    left = list(troubles)
    return lambda body: left.pop(0) if left else None


TOWN = [{"role": "user", "content": "Where?"}]


def load(server, **options):
    return openai.load({"source": {"server": server.address, "model": "black-box"}} | options)


def ask(engine, count=1, n=5, temperature=1.0):
    prompts = [[{"role": "user", "content": f"question {i}"}] for i in range(count)]
    return engine.generate(prompts, n, temperature, 16, list(range(1000, 1000 + count)))


@pytest.fixture(autouse=True)
def quick(monkeypatch, direct):
    """What else a server may send: test_hostile_server.py."""
    monkeypatch.setattr(openai, "BACKOFF", 0.01)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.mark.slow
def test_a_server_in_trouble_still_gives_every_prompt_its_own_texts(capfd):
    with Server(trouble=at_random(0.2), delay=0.01) as server:
        texts = ask(load(server, concurrency=8), count=150)
        assert [len(row) for row in texts] == [5] * 150
        for i, row in enumerate(texts):
            seeds = [openai.request_seed(1000 + i, number) for number in range(5)]
            assert len(set(row)) == 5
            for text in row:
                question, seed, _ = text.split("|")
                assert question == f"question {i}" and int(seed) in seeds
        assert 4 <= server.busiest <= 8
        assert len(server.bodies) > 170
        assert server.keys == {f"Bearer {KEY}"}
    assert KEY not in "".join(capfd.readouterr())


@pytest.mark.parametrize("trouble", [*TROUBLES[:-1], 408, 409, 425, 502, 503, 504, 529])
def test_each_trouble_alone_is_survived(trouble):
    trouble = (trouble, {}, {}) if isinstance(trouble, int) else trouble
    with Server(trouble=at_first(trouble, trouble)) as server:
        assert ask(load(server), n=2) == [[echo(server.bodies[-1], 0), echo(server.bodies[-1], 1)]]
        assert len(server.bodies) == 3
        assert server.bodies[0] == server.bodies[2], "the same request again, with the same seed"


def test_a_reply_longer_than_its_budget_is_cut_counted_and_said_once(capfd):
    with Server(text=lambda body, i: "word " * 10_000) as server:
        engine = load(server)
        texts = [text for row in ask(engine, count=3, n=2) for text in row]
    assert [len(text) for text in texts] == [16 * 128] * 6 and all(text.cut for text in texts)
    assert engine.spent()["shortened"] == 6
    said = [line for line in capfd.readouterr().err.splitlines() if "longer than its budget" in line]
    assert len(said) == 1 and said[0].endswith(
        "a reply is longer than its budget of 16 tokens can be, and is cut there"
    )


def test_a_server_that_ignores_n_is_asked_until_there_are_n():
    with Server(trouble=lambda body: "fewer" if body.get("n", 1) <= 3 else None) as server:
        (row,) = ask(load(server), n=3)
    assert [body.get("n") for body in server.bodies] == [3, 2, None]
    assert row == [f"question 0|{openai.request_seed(1000, number)}|0" for number in range(3)]


def test_a_request_has_what_the_caller_asks_for_and_is_sent_once_for_a_greedy_answer():
    with Server() as server:
        engine = load(server, template_kwargs={"enable_thinking": False})
        engine.generate([TOWN], 2, 0.7, 9, [2**62], top_p=0.9)
        assert ask(load(server), n=4, temperature=0) == [[echo(server.bodies[1], 0)] * 4]
    sampled, greedy = server.bodies
    assert sampled == {
        "model": "black-box", "messages": TOWN, "temperature": 0.7, "top_p": 0.9, "max_tokens": 9, "n": 2,
        "seed": openai.request_seed(2**62, 0), "chat_template_kwargs": {"enable_thinking": False},
    }  # fmt: skip
    assert 0 <= sampled["seed"] < 2**31
    assert greedy["temperature"] == 0 and not {"n", "top_p"} & greedy.keys()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_refusal_ends_at_once_and_hides_the_key(status, capfd):
    value = {"error": {"message": f"Incorrect API key\nprovided: {KEY}", "code": "invalid_api_key"}}
    with Server(trouble=lambda body: (status, {}, value), delay=0.01) as server:
        started = time.monotonic()
        with pytest.raises(BadInput) as caught:
            ask(load(server, concurrency=4), count=100, n=1)
        assert time.monotonic() - started < 5
        assert len(server.bodies) <= 8
    expected = f"{server.address} refuses the request: {status} Incorrect API key provided: ***"
    assert str(caught.value) == expected
    assert KEY not in "".join(capfd.readouterr()) + repr(caught.getrepr(style="long", showlocals=False))


def test_a_used_up_account_is_not_asked_again():
    value = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    with Server(trouble=lambda body: (429, {}, value)) as server:
        with pytest.raises(BadInput, match="429 You exceeded your current quota"):
            ask(load(server))
        assert len(server.bodies) == 1


@pytest.mark.parametrize("retries", [0, 3])
def test_it_gives_up_after_max_retries(retries, capfd, monkeypatch):
    monkeypatch.setattr(openai, "QUIET", -1.0)
    value = {"error": {"message": f"down; your key is {KEY}"}}
    with Server(trouble=lambda body: (503, {}, value)) as server:
        with pytest.raises(BadInput) as caught:
            ask(load(server, max_retries=retries))
        assert len(server.bodies) == 1 + retries
    assert str(caught.value) == f"{server.address}: 503 down; your key is ***; gave up (retries: {retries})"
    said = capfd.readouterr().err
    assert said.count("503 down; your key is ***; trying again in") == retries and KEY not in said


def test_retry_after_is_honoured():
    with Server(trouble=at_first((429, {"Retry-After": "1"}, {}))) as server:
        started = time.monotonic()
        ask(load(server))
        assert 1 <= time.monotonic() - started < 5
    tomorrow = at_first((429, {"Retry-After": "86400"}, {}))
    with Server(trouble=tomorrow) as server, pytest.raises(BadInput, match="asks to wait 86400 s"):
        ask(load(server))


def test_a_redirect_takes_the_key_nowhere():
    with Server() as other:
        moved = (302, {"Location": f"{other.address}/chat/completions"}, {})
        with Server(trouble=lambda body: moved) as server, pytest.raises(BadInput, match="302 .*moved to"):
            ask(load(server))
        assert other.bodies == []


def test_a_slow_answer_is_asked_for_again():
    with Server(delay=0.6) as server:
        threading.Timer(0.4, lambda: setattr(server, "delay", 0)).start()
        assert len(ask(load(server, timeout=0.3))[0]) == 5
        assert len(server.bodies) >= 2


def test_an_address_where_nothing_answers_or_that_is_none():
    with Server() as server:
        new, known = (load(server, max_retries=2) for _ in range(2))
        ask(known)
    started = time.monotonic()
    for engine, said in ((new, "is the address right and the server running"), (known, "no connection .*; gave up")):
        with pytest.raises(BadInput, match=said):
            ask(engine)
    assert time.monotonic() - started < 5
    for address in ("localhost:8000/v1", "http://"):
        engine = openai.load({"source": {"server": address, "model": "black-box"}})
        with pytest.raises(BadInput, match="expected an address like http://localhost:8000/v1"):
            ask(engine)
    with pytest.raises(BadInput, match="the engine openai needs {server, model}"):
        openai.load({"source": {"hub": "a/b"}})


@pytest.mark.parametrize("key", ["sk-with-a-line\nbreak", "sk-with-umlaut-ä"])
def test_a_key_that_cannot_be_sent(key, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with Server() as server, pytest.raises(BadInput) as caught:
        load(server)
    assert "OPENAI_API_KEY" in str(caught.value) and "sk-" not in str(caught.value)


@pytest.mark.parametrize("key", [None, "", " \n"])
def test_local_servers_need_no_key(key, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    if key is not None:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    with Server() as server:
        ask(load(server))
    assert server.keys == {None}


@pytest.mark.parametrize("message", [
    {"content": None, "reasoning_content": "It is Rome."},
    {"content": "<think>It is Rome.</think>"},
    {"content": None, "tool_calls": [{"type": "function"}]},
    {"content": ""},
])  # fmt: skip
def test_replies_without_an_answer_are_counted_and_said_in_one_line(message, capfd):
    with Server(text=lambda body, i: message) as server:
        engine = load(server)
        assert ask(engine, n=2) == ask(engine, n=2) == [["", ""]]
        assert engine.spent()["unanswered"] == 4
    lines = [line for line in capfd.readouterr().err.splitlines() if "of its replies" in line]
    assert len(lines) == 1 and "2 of its replies have no answer, which stays empty" in lines[0]


@pytest.mark.parametrize("ending", ["", "/", "/chat/completions", "/chat/completions/"])
def test_the_address_of_a_server_may_be_its_whole_endpoint(ending):
    with Server() as server:
        server.address += ending
        assert len(ask(load(server))[0]) == 5


@pytest.mark.parametrize("ending", ["", "/", "/v1/models", "/v1/completions"])
def test_an_address_that_is_no_endpoint_is_said_to_end_otherwise(ending):
    with Server() as server:
        server.address = server.address.removesuffix("/v1") + ending
        said = "refuses the request: 404 .*; an address mostly ends with /v1$"
        with pytest.raises(BadInput, match=said):
            ask(load(server))


def test_a_server_is_asked_from_within_a_running_event_loop():
    """As a cell of a notebook, or a handler of an asynchronous web service, calls it."""

    async def cell():
        return ask(load(server))

    with Server() as server:
        assert len(asyncio.run(cell())[0]) == 5


@contextlib.contextmanager
def handling(signum, handler):
    former = signal.signal(signum, handler)
    try:
        yield
    finally:
        signal.signal(signum, former)


def test_an_interrupted_cell_sends_no_further_request():
    """A kernel's loop leaves SIGINT as it is, where asyncio.run would catch it."""

    def interrupt_after_the_first_request():
        while not server.bodies:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    async def cell():
        threading.Thread(target=interrupt_after_the_first_request).start()
        return ask(load(server), count=100, n=1)

    # What a shell runs in the background ignores the signal.
    interruptible = handling(signal.SIGINT, signal.default_int_handler)
    with interruptible, Server(delay=0.2) as server:
        with contextlib.closing(asyncio.new_event_loop()) as loop, pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(cell())
        assert 0 < len(server.bodies) < 60


def measuring(*words) -> subprocess.Popen:
    """`orce measure` of the questions in q.jsonl."""
    command = [sys.executable, "-m", "orce", "measure", "q.jsonl", *words, "--out", "o.jsonl"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM], ids=lambda sent: sent.name)
def test_a_signal_while_a_server_is_asked_ends_the_command_with_one_line(sent, folder):
    files.write_jsonl("q.jsonl", [{"question": f"{i}?"} for i in range(200)])
    with Server(delay=0.1) as server:
        model = ["--model", server.address, "--server-model", "m"]
        asking = measuring(*model, "--methods", "agreement")
        while not server.bodies:
            time.sleep(0.02)
        time.sleep(0.2)
        asking.send_signal(sent)
        said = asking.communicate(timeout=9)[1]
    assert asking.returncode == 128 + sent and "Traceback" not in said
    assert said.splitlines()[-1] == f"orce: ended by {sent.name}; run again, it goes on from what is finished"
    assert not Path("o.jsonl").exists() and len(server.bodies) < 200


def test_a_signal_raises_where_the_loop_is_awaited_and_never_inside_a_request():
    """There it was taken for an error of the request, in one of twenty runs, and the command ended with a traceback."""
    seen = []

    async def ask():
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.sleep(30)
        except BaseException as error:
            seen.append(type(error))
            raise

    def stop(signum, frame):
        raise SystemExit(128 + signum)

    with handling(signal.SIGTERM, stop), pytest.raises(SystemExit):
        openai.run_apart(ask())
    assert seen == [asyncio.CancelledError]


def measuring_asleep(code: str) -> subprocess.Popen:
    """A run of `orce measure` with a method whose file has said "asleep"."""
    files.write_jsonl("q.jsonl", [{"question": "?", "answers": ["a", "a"]}])
    Path("own.py").write_text(code)
    asleep = measuring("--methods", "own.py")
    assert asleep.stdout.readline() == "asleep\n"
    return asleep


@pytest.mark.slow
def test_a_signal_before_a_coroutine_is_awaited_says_its_one_line_alone(folder):
    """Python warns of such a coroutine when it is freed, which is after the line about the signal."""
    asleep = measuring_asleep(
        "import time\nasync def ask(): ...\nasked = ask()\nprint('asleep', flush=True)\ntime.sleep(60)\n"
    )
    asleep.send_signal(signal.SIGINT)
    said = asleep.communicate(timeout=20)[1]
    assert said.splitlines()[-1] == "orce: ended by SIGINT; run again, it goes on from what is finished"


@pytest.mark.slow
def test_a_signal_that_a_library_catches_ends_the_command_all_the_same(folder):
    """As an import that fails in any way is caught by some that have another module in its place."""
    asleep = measuring_asleep(
        "import time\ntry:\n    print('asleep', flush=True)\n    time.sleep(60)\nexcept BaseException:\n    time.sleep(60)\n"
    )
    asleep.terminate()
    assert asleep.wait(timeout=20) == -signal.SIGALRM
