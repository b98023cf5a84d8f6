"""The engine for OpenAI-compatible servers, against a real server on this machine that misbehaves on purpose."""

import asyncio
import contextlib
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from conftest import ARITHMETIC
from servers import Serving

from orce import tasks
from orce.artefacts import files
from orce.errors import BadInput
from orce.llm.engines import openai

KEY = "sk-do-not-show-me-anywhere"
TROUBLES = ("too many", "broken server", "cut", "broken json", "fewer")


class Server(Serving):
    """Chat completions whose texts depend on prompt, seed and choice alone; `trouble(body)` names what goes wrong."""

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
        choices = [{"index": i, "message": {"content": self.server.text(body, i)}} for i in range(count)]
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


def test_a_server_that_refuses_n_gets_single_requests():
    def trouble(body):
        return (400, {}, {"error": {"message": "only one choice is allowed"}}) if "n" in body else None

    with Server(trouble=trouble) as server:
        texts = ask(load(server, concurrency=1), count=2, n=3)
    assert [len(set(row)) for row in texts] == [3, 3]
    assert [body.get("n") for body in server.bodies] == [3] + [None] * 6


def test_a_server_that_wants_max_completion_tokens():
    reason = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."

    def trouble(body):
        return (400, {}, {"error": {"message": reason}}) if "max_tokens" in body else None

    with Server(trouble=trouble) as server:
        texts = ask(load(server, concurrency=4), count=20, n=2)
    assert [len(row) for row in texts] == [2] * 20
    accepted = [body for body in server.bodies if "max_tokens" not in body]
    assert len(accepted) == 20
    assert all(body["max_completion_tokens"] == 16 and body["n"] == 2 for body in accepted)


def test_greedy_is_asked_once():
    with Server() as server:
        texts = ask(load(server), n=4, temperature=0)
    (body,) = server.bodies
    assert texts == [[echo(body, 0)] * 4]
    assert body["temperature"] == 0 and "n" not in body and "top_p" not in body


def test_what_a_request_says():
    with Server() as server:
        engine = load(server, template_kwargs={"enable_thinking": False})
        engine.generate([[{"role": "user", "content": "q"}]], 2, 0.7, 9, [2**62], top_p=0.9)
    assert server.bodies == [
        {"model": "black-box", "messages": [{"role": "user", "content": "q"}], "temperature": 0.7, "top_p": 0.9,
         "max_tokens": 9, "n": 2, "seed": openai.request_seed(2**62, 0),
         "chat_template_kwargs": {"enable_thinking": False}},
    ]  # fmt: skip
    assert 0 <= server.bodies[0]["seed"] < 2**31


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


def test_the_words_of_other_servers():
    for value, words in (({"error": "Unauthorized"}, "Unauthorized"), ({"detail": "gone"}, '{"detail": "gone"}')):
        refusal = at_first((404, {}, value))
        with Server(trouble=refusal) as server, pytest.raises(BadInput, match=f"404 {words}$"):
            ask(load(server))


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


def sums(body, i):
    """A sum, right two times out of three, by prompt, seed and choice."""
    expression = re.search(r"What is (.*)\?", body["messages"][-1]["content"])[1]
    left, sign, right = expression.split()
    result = {"+": int(left) + int(right), "-": int(left) - int(right), "*": int(left) * int(right)}[sign]
    wrong = hashlib.sha256(echo(body, i).encode()).digest()[0] % 3 == 0
    return f"{expression} = {result + wrong}"


def unsteady(share):
    """Errors at random; too few choices by the request alone, as the texts depend on how they were asked for."""
    dice = at_random(share, troubles=TROUBLES[:-1])

    def trouble(body):
        few = hashlib.sha256(echo(body, 0).encode()).digest()[1] % 4 == 0
        return dice(body) or ("fewer" if few else None)

    return trouble


@pytest.fixture
def step(tmp_path):
    """Starts ``python -m orce sample`` on 48 sums, half of them of the test split; returns the process."""
    examples = tasks.get(ARITHMETIC).load({}, "validation", 0)[:48]
    files.write_jsonl(tmp_path / "sft.jsonl", examples[:24])
    files.write_jsonl(tmp_path / "test.jsonl", examples[24:])

    def start(server, out):
        options = {
            "label": "sample arithmetic/black-box", "task": ARITHMETIC, "shots": None, "seed": 1, "engine": "openai",
            "samples": 5, "temperature": 1.0, "top_p": 1.0, "max_tokens": None,
            "model": {"source": {"server": server.address, "model": "black-box"}, "dtype": "float32", "device": "cpu", "template_kwargs": {}},
        }  # fmt: skip
        speed = {"answers": {"concurrency": 6, "max_retries": 30, "chunk": 6}}
        prompts = [f"{split}={tmp_path / split}.jsonl" for split in ("sft", "test")]
        arguments = ["--settings", json.dumps(options), "--prompts", *prompts, "--out", str(out / "samples.jsonl")]
        return subprocess.Popen(
            [sys.executable, "-m", "orce", "sample", *arguments], env=os.environ | {"ORCE_SPEED": json.dumps(speed)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    return start


@pytest.mark.slow
def test_a_killed_step_resumes_and_ends_with_the_same_bytes(step, tmp_path):
    (tmp_path / "killed").mkdir(), (tmp_path / "whole").mkdir()
    said = []
    with Server(sums, unsteady(0.1), delay=0.02) as server:
        first = step(server, tmp_path / "killed")
        while len([*tmp_path.glob("killed/.partial/*/*.jsonl")]) < 2:
            assert first.poll() is None
            time.sleep(0.01)
        first.kill()
        said.append(first.communicate()[0])
        assert first.returncode == -signal.SIGKILL
        chunks = sorted(tmp_path.glob("killed/.partial/*/*.jsonl"))
        finished = [json.loads(line)["id"] for chunk in chunks for line in chunk.read_text().splitlines()]
        assert 12 <= len(finished) < 48 and not [*tmp_path.glob("killed/*.jsonl")]
        server.bodies.clear()
        for out in ("killed", "whole"):
            process = step(server, tmp_path / out)
            said.append(process.communicate(timeout=60)[0])
            assert process.returncode == 0, said[-1]
            if out == "killed":
                again = {re.sub(r"What is |\?| ", "", text.split("\n")[-1]) for text in server.asked()}
                assert not again & set(finished), "finished chunks are not asked for again"
    killed, whole = ((tmp_path / out / "samples.jsonl").read_bytes() for out in ("killed", "whole"))
    assert killed == whole
    records = files.read_jsonl(tmp_path / "whole" / "samples.jsonl")
    assert [len(record["raw"]) for record in records] == [5] * 48
    assert 0.4 < sum(sum(record["correct"]) for record in records) / 240 < 0.9
    assert sum("greedy" in record for record in records) == 24
    assert KEY not in "".join(said) + whole.decode()


@pytest.mark.parametrize(("message", "said"), [
    ({"content": None, "reasoning_content": "It is Rome."}, "2 of its replies: each has thoughts and no answer"),
    ({"content": "", "reasoning": "It is Rome."}, "2 of its replies: each has thoughts and no answer"),
    ({"content": "<think>It is Rome.</think>"}, "2 of its replies: each has thoughts and no answer"),
    ({"content": None, "tool_calls": [{"type": "function"}]}, "2 of its replies: each calls a tool"),
    ({"content": ""}, "2 of its replies: each ends without an answer"),
])  # fmt: skip
def test_replies_without_an_answer_are_counted_and_said_in_one_line(message, said, capfd):
    with Serving(fixed(message)) as server:
        engine = openai.load({"source": {"server": server.address, "model": "m"}})
        assert engine.generate([TOWN], 2, 0.7, 50, [1]) == [["", ""]]
        assert engine.generate([TOWN], 2, 0.7, 50, [2]) == [["", ""]]
    lines = [line for line in capfd.readouterr().err.splitlines() if "of its replies" in line]
    assert len(lines) == 1 and said in lines[0]


def fixed(message):
    """A handler whose choices all have this message."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not self.path.endswith("/v1/chat/completions") or self.path.count("completions") > 1:
                self.send_error(404)
                return
            choice = {"message": {"role": "assistant"} | message, "finish_reason": "stop"}
            content = json.dumps({"choices": [choice] * body.get("n", 1)}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    return Handler


TOWN = [{"role": "user", "content": "Where?"}]


@pytest.mark.parametrize("ending", ["", "/", "/chat/completions", "/chat/completions/"])
def test_the_address_of_a_server_may_be_its_whole_endpoint(ending):
    with Serving(fixed({"content": "Rome"})) as server:
        engine = openai.load({"source": {"server": server.address + ending, "model": "m"}})
        assert engine.generate([TOWN], 1, 0.7, 50, [1]) == [["Rome"]]


@pytest.mark.parametrize("ending", ["", "/", "/v1/models", "/v1/completions"])
def test_an_address_that_is_no_endpoint_is_said_to_end_otherwise(ending):
    with Serving(fixed({"content": "Rome"})) as server:
        address = server.address.removesuffix("/v1") + ending
        engine = openai.load({"source": {"server": address, "model": "m"}})
        with pytest.raises(BadInput, match="refuses the request: 404 .*; an address mostly ends with /v1$"):
            engine.generate([TOWN], 1, 0.7, 50, [1])


def test_a_server_is_asked_from_within_a_running_event_loop():
    """As a cell of a notebook, or a handler of an asynchronous web service, calls it."""

    async def cell():
        return engine.generate([TOWN], 1, 0.7, 50, [1])

    with Serving(fixed({"content": "Rome"})) as server:
        engine = openai.load({"source": {"server": server.address, "model": "m"}})
        assert asyncio.run(cell()) == [["Rome"]]


def test_an_interrupted_cell_sends_no_further_request():
    """A kernel's loop leaves SIGINT as it is, where asyncio.run would catch it."""

    def interrupt_after_the_first_request():
        while not server.bodies:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    async def cell():
        threading.Thread(target=interrupt_after_the_first_request).start()
        return engine.generate([TOWN] * 100, 1, 0.7, 50, [*range(100)])

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell runs in the background ignores it
    try:
        with Server(delay=0.2) as server:
            engine = load(server)
            with contextlib.closing(asyncio.new_event_loop()) as loop, pytest.raises(KeyboardInterrupt):
                loop.run_until_complete(cell())
            assert 0 < len(server.bodies) < 60
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM], ids=lambda sent: sent.name)
def test_a_signal_while_a_server_is_asked_ends_the_command_with_one_line(sent, folder):
    files.write_jsonl("q.jsonl", [{"question": f"{i}?"} for i in range(200)])
    with Server(delay=0.1) as server:
        words = ["measure", "q.jsonl", "--model", server.address, "--server-model", "m", "--methods", "agreement"]
        asking = subprocess.Popen(
            [sys.executable, "-m", "orce", *words, "--out", "o.jsonl"], stderr=subprocess.PIPE, text=True
        )
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

    former = signal.signal(signal.SIGTERM, stop)
    try:
        with pytest.raises(SystemExit):
            openai.run_apart(ask())
    finally:
        signal.signal(signal.SIGTERM, former)
    assert seen == [asyncio.CancelledError]


def measuring_asleep(code: str) -> subprocess.Popen:
    """A run of `orce measure` with a method whose file has said "asleep"."""
    files.write_jsonl("q.jsonl", [{"question": "?", "answers": ["a", "a"]}])
    Path("own.py").write_text(code)
    words = [sys.executable, "-m", "orce", "measure", "q.jsonl", "--methods", "own.py", "--out", "o.jsonl"]
    asleep = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
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
