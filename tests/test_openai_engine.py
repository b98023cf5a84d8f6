"""The engine for OpenAI-compatible servers, against a real server on this machine that misbehaves on purpose.

What else a server may send: test_hostile_server.py.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from servers import Api, choice

from orce.artefacts import files
from orce.errors import BadInput
from orce.llm.engines import openai

KEY = "sk-do-not-show-me-anywhere"
TROUBLES = ("too many", "broken server", "cut", "broken json", "fewer")


def echo(body, i):
    return f"{body['messages'][-1]['content']}|{body.get('seed')}|{i}"


class Server(Api):
    """Chat completions whose texts, or messages, depend on prompt, seed and choice alone.

    `trouble(body)` names what goes wrong, or is a reply: (status, value, headers).
    """

    def __init__(self, text=echo, trouble=lambda body: None, delay=0.0):
        self.text, self.trouble, self.delay, self.keys = text, trouble, delay, set()
        super().__init__(self.completions)

    def completions(self, body, headers):
        self.keys.add(headers.get("Authorization"))
        trouble, n = self.trouble(body), body.get("n", 1)
        time.sleep(0.4 if trouble == "late" else self.delay)
        said = [self.text(body, i) for i in range(max(1, n // 2) if trouble == "fewer" else n)]
        messages = [one if isinstance(one, dict) else {"content": one} for one in said]
        choices = [choice(**message, index=i) for i, message in enumerate(messages)]
        whole = json.dumps({"choices": choices[::-1]}).encode()
        half = whole[: len(whole) // 2]
        replies = {
            "too many": (429, {"error": {"message": "slow down"}}, {"Retry-After": "0"}),
            "broken server": (500, b"<html>Internal Server Error</html>"),
            "broken json": (200, half),
            "cut": (200, half, {"Content-Length": str(len(whole))}),
        }
        return trouble if isinstance(trouble, tuple) else replies.get(trouble, (200, whole))


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
    monkeypatch.setattr(openai, "BACKOFF", 0.01)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.mark.slow
def test_a_server_in_trouble_still_gives_every_prompt_its_own_texts(capfd):
    dice, busy, together = random.Random(0), [], []

    def at_random(body):
        busy.append(body)
        together.append(len(busy))
        time.sleep(0.01)
        busy.pop()
        return dice.choice(TROUBLES) if dice.random() < 0.2 else None

    with Server(trouble=at_random) as server:
        texts = ask(load(server, concurrency=8), count=150)
    assert [len({*row}) for row in texts] == [5] * 150
    for i, row in enumerate(texts):
        seeds = [openai.request_seed(1000 + i, number) for number in range(5)]
        for text in row:
            question, seed, _ = text.split("|")
            assert question == f"question {i}" and int(seed) in seeds
    assert 4 <= max(together) <= 8
    assert len(server.bodies) > 170
    assert server.keys == {f"Bearer {KEY}"}
    assert KEY not in "".join(capfd.readouterr())


@pytest.mark.parametrize("trouble", [*TROUBLES[:-1], "late", 408, 409, 425, 502, 529])
def test_each_trouble_alone_is_survived(trouble):
    trouble = (trouble, {}) if isinstance(trouble, int) else trouble
    with Server(trouble=at_first(trouble, trouble)) as server:
        assert ask(load(server, timeout=0.3), n=2) == [[echo(server.bodies[-1], i) for i in range(2)]]
    assert len(server.bodies) == 3
    assert server.bodies[0] == server.bodies[2], "the same request again, with the same seed"


LENGTHY = "word " * 10_000
CUT = LENGTHY[: 16 * 128], "shortened", "a reply is longer than its budget of 16 tokens can be, and is cut there"
EMPTY = "", "unanswered", "2 of its replies have no answer, which stays empty"


@pytest.mark.parametrize(("message", "text", "counted", "said"), [
    ({"content": LENGTHY}, *CUT), ({"content": None, "reasoning_content": "It is Rome."}, *EMPTY),
    ({"content": "<think>It is Rome.</think>"}, *EMPTY), ({"content": None, "tool_calls": [{"type": "function"}]}, *EMPTY),
])  # fmt: skip
def test_replies_too_long_or_without_an_answer_are_counted_and_said_in_one_line(message, text, counted, said, capfd):
    with Server(text=lambda body, i: message) as server:
        engine = load(server)
        assert ask(engine, n=2) == ask(engine, n=2) == [[text, text]]
    assert engine.spent()[counted] == 4
    lines = [line for line in capfd.readouterr().err.splitlines() if "repl" in line]
    assert len(lines) == 1 and said in lines[0]


def test_a_server_that_ignores_n_is_asked_until_there_are_n():
    with Server(trouble=lambda body: "fewer") as server:
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


@pytest.mark.parametrize(("status", "code"), [
    *((status, "invalid_api_key") for status in (400, 401, 403, 404, 422)), (429, "insufficient_quota"),
])  # fmt: skip
def test_a_refusal_or_a_used_up_account_ends_at_once_and_hides_the_key(status, code, capfd):
    value = {"error": {"message": f"Incorrect API key\nprovided: {KEY}", "code": code}}
    with Server(trouble=lambda body: (status, value), delay=0.01) as server, pytest.raises(BadInput) as caught:
        ask(load(server, concurrency=4), count=100, n=1)
    assert len(server.bodies) <= 8
    assert str(caught.value) == f"{server.address} refuses the request: {status} Incorrect API key provided: ***"
    assert KEY not in "".join(capfd.readouterr()) + repr(caught.getrepr(style="long", showlocals=False))


@pytest.mark.parametrize("retries", [0, 3])
def test_it_gives_up_after_max_retries(retries, capfd, monkeypatch):
    monkeypatch.setattr(openai, "QUIET", -1.0)
    value = {"error": {"message": f"down; your key is {KEY}"}}
    with Server(trouble=lambda body: (503, value)) as server, pytest.raises(BadInput) as caught:
        ask(load(server, max_retries=retries))
    assert len(server.bodies) == 1 + retries
    assert str(caught.value) == f"{server.address}: 503 down; your key is ***; gave up (retries: {retries})"
    said = capfd.readouterr().err
    assert said.count("503 down; your key is ***; trying again in") == retries and KEY not in said


def test_retry_after_is_honoured():
    with Server(trouble=at_first((429, {}, {"Retry-After": "1"}))) as server:
        ask(load(server))
    assert 1 <= server.times[1] - server.times[0] < 5


def test_an_address_where_nothing_answers_or_that_is_none():
    with Server() as server:
        new, known = (load(server, max_retries=2) for _ in range(2))
        ask(known)
    none = (openai.load({"source": {"server": one, "model": "m"}}) for one in ("localhost:8000/v1", "http://"))
    started = time.monotonic()
    for engine, said in (
        (new, "is the address right and the server running"),
        (known, "no connection .*; gave up"),
        *((engine, "expected an address like http://localhost:8000/v1") for engine in none),
    ):
        with pytest.raises(BadInput, match=said):
            ask(engine)
    assert time.monotonic() - started < 5
    with pytest.raises(BadInput, match="the engine openai needs {server, model}"):
        openai.load({"source": {"hub": "a/b"}})


def test_a_key_is_sent_where_there_is_one_and_refused_unseen_where_it_cannot_be(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    with Server() as server:
        ask(load(server))
        for key in ("", " \n"):
            monkeypatch.setenv("OPENAI_API_KEY", key)
            ask(load(server))
        assert server.keys == {None}
        for key in ("sk-with-a-line\nbreak", "sk-with-umlaut-ä"):
            monkeypatch.setenv("OPENAI_API_KEY", key)
            with pytest.raises(BadInput) as caught:
                load(server)
            assert "OPENAI_API_KEY" in str(caught.value) and "sk-" not in str(caught.value)


@pytest.mark.parametrize("ending", ["", "/", "/chat/completions", "/chat/completions/"])
def test_the_address_of_a_server_may_be_its_whole_endpoint_and_another_is_told_how_it_ends(ending):
    with Server() as server:
        server.address += ending
        assert len(ask(load(server))[0]) == 5
        server.address = server.origin + ending.replace("/chat", "/v1")
        with pytest.raises(BadInput, match="refuses the request: 404 .*; an address mostly ends with /v1$"):
            ask(load(server))


@pytest.mark.parametrize(("sent", "handler", "raised"), [
    (signal.SIGINT, signal.default_int_handler, KeyboardInterrupt),  # a shell's background jobs ignore it
    (signal.SIGTERM, lambda *_: sys.exit(1), SystemExit),
])  # fmt: skip
def test_a_signal_raises_where_the_loop_is_awaited_and_cancels_the_requests(sent, handler, raised):
    """Inside one it was taken for an error of the request, in one of twenty runs, and the command ended with a traceback.

    As in a cell of a notebook, a loop runs already, which leaves SIGINT as it is, where asyncio.run would catch it.
    """
    seen = []

    async def request():
        os.kill(os.getpid(), sent)
        try:
            await asyncio.sleep(30)
        except BaseException as error:
            seen.append(type(error))
            raise

    async def cell():
        return openai.run_apart(request())

    former = signal.signal(sent, handler)
    try:
        with contextlib.closing(asyncio.new_event_loop()) as loop, pytest.raises(raised):
            loop.run_until_complete(cell())
    finally:
        signal.signal(sent, former)
    assert seen == [asyncio.CancelledError]


MEASURING = [sys.executable, "-m", "orce", "measure", "q.jsonl", "--out", "o.jsonl"]
PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
ENDED = "orce: ended by {}; run again, it goes on from what is finished\n"


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM], ids=lambda sent: sent.name)
def test_a_signal_while_a_server_is_asked_ends_the_command_with_one_line(sent, folder):
    files.write_jsonl("q.jsonl", [{"question": f"{i}?"} for i in range(200)])
    with Server(delay=0.1) as server:
        words = ["--model", server.address, "--server-model", "m", "--methods", "agreement"]
        asking = subprocess.Popen([*MEASURING, *words], **PIPES)
        while not server.bodies:
            time.sleep(0.02)
        time.sleep(0.2)
        asking.send_signal(sent)
        said = asking.communicate(timeout=9)[1]
    assert asking.returncode == 128 + sent and "Traceback" not in said
    assert said.endswith("\n" + ENDED.format(sent.name))
    assert not Path("o.jsonl").exists() and len(server.bodies) < 200


@pytest.mark.slow
@pytest.mark.parametrize(("code", "sent", "status", "said"), [
    # Python warns of a coroutine that nobody awaited when it is freed, which is after the line about the signal.
    ("import time\nasync def ask(): ...\nasked = ask()\nprint('asleep', flush=True)\ntime.sleep(60)", signal.SIGINT, 130, ENDED.format("SIGINT")),
    # As an import that fails in any way is caught by some libraries that have another module in its place.
    ("import time\ntry:\n print('asleep', flush=True)\n time.sleep(60)\nexcept BaseException:\n time.sleep(60)",
     signal.SIGTERM, -signal.SIGALRM, ""),
], ids=["a coroutine", "a library that catches it"])  # fmt: skip
def test_a_signal_ends_a_command_whose_own_code_is_in_its_way(code, sent, status, said, folder):
    files.write_jsonl("q.jsonl", [{"question": "?", "answers": ["a", "a"]}])
    Path("own.py").write_text(code)
    asleep = subprocess.Popen([*MEASURING, "--methods", "own.py"], **PIPES)
    assert asleep.stdout.readline() == "asleep\n"
    asleep.send_signal(sent)
    assert asleep.communicate(timeout=60)[1].endswith(said)  # of which it has GRACE
    assert asleep.returncode == status
