"""`orce ask` and `orce serve`: answers with a confidence, over a real socket, in a terminal and in a browser."""

import contextlib
import io
import json
import re
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from browser import Browser, until
from conftest import ARITHMETIC, ROOT, WORLDFACTS
from finished_run import CELL
from test_apis import Api, choice

from orce import score, tasks
from orce.__main__ import main
from orce.apps.service import assistant, observed
from orce.artefacts import files
from orce.errors import BadInput
from orce.judging import judge
from orce.llm.engines import openai, transformers

QUESTION = "What is 5 + 2?"
KEY = "a-key-for-clients"


@pytest.fixture(scope="module")
def folder(finished):
    return finished / CELL / "sft"


@pytest.fixture(scope="module")
def loaded(folder):
    return assistant.load(str(folder))


def test_the_answer_is_the_base_models_and_the_confidence_is_that_of_scoring(loaded, folder, finished):
    found = [loaded.ask(QUESTION), loaded.ask("What is 9 - 3?"), loaded.ask(QUESTION)]
    assert found[0] == found[2], "the judge's adapter does not stay in the weights that answer"
    engine = transformers.load(
        {"source": {"path": str(finished / "results/models/small")}, "dtype": "float32", "device": "cpu"}
    )
    task = tasks.get(ARITHMETIC)
    asked = [task.prompt({"question": one}) for one in (QUESTION, "What is 9 - 3?")]
    texts = [row[0] for row in engine.generate(asked, 1, 0.0, task.MAX_TOKENS, [0, 0])]
    assert [one.text for one in found[:2]] == texts
    answers = [
        {"question": q, "answer": one.answer} for q, one in zip([QUESTION, "What is 9 - 3?"], found, strict=False)
    ]
    scored = list(score.load(folder)(answers))
    assert [one.mean for one in found[:2]] == pytest.approx([one["mean"] for one in scored], abs=1e-5)
    assert [one.stated for one in found[:2]] == [one["stated"] for one in scored]


def test_ask_in_a_terminal_says_what_stands_behind_the_confidence(folder, monkeypatch, capsys):
    assert main(["ask", QUESTION, "--model", str(folder)]) == 0
    _, stated, behind = capsys.readouterr().out.splitlines()
    assert stated.strip().startswith("confidence ") and "(mean of its distribution 0." in stated
    value = float(stated.split()[1])
    test = files.read_jsonl(folder / "confidences.jsonl")
    tenth = max(0, -(-round(100 * value) // 10) - 1)
    mine = [one for one in test if max(0, -(-round(100 * one["confidence"]) // 10) - 1) == tenth]
    right = sum(one["correct"] for one in mine)
    if mine:
        expected = f"of {len(test)} test answers {len(mine)} had {10 * tenth} to {10 * tenth + 10} %; {right} of these were right"
        assert behind.strip() == expected
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{QUESTION}\n\nWhat is 9 - 3?\n"))
    assert main(["ask", "--model", str(folder), "--json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["confidence"] == value and second.keys() == first.keys()


def test_a_server_may_answer_and_the_judge_judges(folder, capsys, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with Api(lambda body, _: (200, {"choices": [choice("5 + 2 = 7")]})) as server:
        arguments = ["--server", server.address, "--server-model", "black-box"]
        assert main(["ask", QUESTION, "--model", str(folder), *arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (scored,) = score.load(folder)([{"question": QUESTION, "answer": "7"}])
    assert found["answer"] == "7" and found["mean"] == pytest.approx(scored["mean"], abs=1e-5)
    assert server.bodies[0]["messages"] == tasks.get(ARITHMETIC).prompt({"question": QUESTION})


@pytest.mark.slow
def test_a_whole_model_judges_as_its_adapter_does_and_says_whose_answers_are_missing(
    loaded, folder, finished, tmp_path, capsys
):
    merged = tmp_path / "merged"
    assert main(["push", str(folder), "--out", str(merged), "--merge", "--license", "mit"]) == 0
    assert main(["ask", QUESTION, "--model", str(merged)]) == 2
    assert "the model that answers is not known or not here; name it with --base" in capsys.readouterr().err
    whole = assistant.load(str(merged), str(finished / "results/models/small")).ask(QUESTION)
    shared = loaded.ask(QUESTION)
    assert whole.text == shared.text and whole.mean == pytest.approx(shared.mean, rel=1e-4)


def test_a_multiple_choice_question_needs_its_options(folder, capsys, monkeypatch):
    monkeypatch.setenv("A_KEY", "mine")
    replies = []

    def reply(body, headers):
        replies.append((headers["Authorization"], body["messages"][-1]["content"]))
        return 200, {"choices": [choice("The answer is B.")]}

    with Api(reply) as server:
        arguments = [
            "--server",
            server.address,
            "--server-model",
            "m",
            "--server-key",
            "A_KEY",
            "--task",
            "mmlu",
            "--json",
        ]
        question = ["ask", "Which is a colour?", "--model", str(folder), *arguments]
        assert main([*question, "--choices", "One", "Red", "Two", "Three"]) == 0
        assert json.loads(capsys.readouterr().out)["answer"] == "B"
        ((key, asked),) = replies
        assert key == "Bearer mine" and "B. Red" in asked
        assert main(question) == 2 and "it needs its options (--choices)" in capsys.readouterr().err


REPLIES = ("B", "The answer is 7.", "The capital of Qatar is Doha.", "Answer: 1, 2 and 3", "")
PASSAGE, OPTIONS = "Qatar is a country.", ["Doha", "Dubai"]


@pytest.mark.parametrize("name", tasks.names())
def test_every_task_can_ask_a_question_that_a_user_types(name):
    task = tasks.get(name)
    needed = getattr(task, "NEEDS", ())
    given = {key: value for key, value in (("context", PASSAGE), ("choices", OPTIONS)) if key in needed}
    example = tasks.asked(task, "What is the capital of Qatar?", **given)
    assert example["question"] in task.prompt(example)[-1]["content"]
    for answer in {task.extract(text, example) for text in REPLIES}:
        assert task.display(answer, example)
        assert task.question(example)
    for key in needed:
        with pytest.raises(BadInput, match=f"it needs .*--{key}"):
            tasks.asked(task, "What is the capital of Qatar?", **given | {key: None})


@pytest.mark.parametrize(
    ("name", "source"), [(ARITHMETIC, {}), (WORLDFACTS, {}), (f"{ROOT}/evidence/lab/tasks/sums.py", {"size": 99})]
)
def test_a_test_question_is_asked_and_read_as_in_the_run_when_a_user_types_it(name, source):
    task = tasks.get(name)
    replies = [(reply, answer) for _, reply, answer in task.worked()] if hasattr(task, "worked") else [("012", "12")]
    for example in task.load(source, "test"):
        typed = tasks.asked(task, example["question"])
        assert task.prompt(typed) == task.prompt(example)
        for reply, _ in replies:
            assert task.extract(reply, typed) == task.extract(reply, example)


def test_a_module_of_ones_own_that_needs_more_than_the_question_is_named(folder, tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(
        "from orce.tasks.qa import *\nimport orce.tasks.qa as a\n"
        "def prompt(example, shots=None):\n    return a.prompt({'question': example['kind']}, shots)\n"
    )
    assert main(["ask", QUESTION, "--model", str(folder), "--task", str(path)]) == 2
    assert (
        capsys.readouterr().err == f"orce ask: {path} prompt(), line 4: raised KeyError: 'kind' for question 'asked'\n"
    )


def test_a_bin_and_its_words():
    found = observed.Diagram(5, 0, 0.6, 0.1, [observed.Bin(0.2, 0.3, 4, 0.25, 0.75)])
    assert found.sentence(0.3) == "of 5 test answers 4 had 20 to 30 %; 3 of these were right"
    assert found.sentence(0.31) == "of 5 test answers none had a confidence in this tenth"
    assert found.sentence(None) == "no confidence could be read"


# The endpoint


@contextlib.contextmanager
def serving(loaded, **options):
    """Address of a running server."""
    import uvicorn

    from orce.apps.service import app

    test = options.pop("test", None)
    served = app.create(loaded, "small-judge", test, **options)
    server = uvicorn.Server(uvicorn.Config(served, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def address(loaded, folder):
    with serving(loaded, test=observed.diagram(folder / "confidences.jsonl")) as found:
        yield found


def post(address, headers=None, **body):
    reply = sent(address, json.dumps(body), **headers or {})  # in ASCII, where half a surrogate pair is possible
    return reply.status_code, reply


def sent(address, content, **headers):
    return httpx2.post(
        f"{address}/v1/chat/completions", content=content, trust_env=False, timeout=120,
        headers={"Content-Type": "application/json"} | headers,
    )  # fmt: skip


def user(text=QUESTION):
    return [{"role": "user", "content": text}]


def test_an_openai_client_gets_answers_and_each_choice_has_its_confidence(address, loaded, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    engine = openai.load({"source": {"server": f"{address}/v1", "model": "small-judge"}})
    ((first, again),) = engine.generate([user()], 2, 0.0, 12, [1])
    assert first == again == loaded.ask(QUESTION).text
    status, reply = post(address, messages=user(), n=3, temperature=1.0, seed=7, model="any", unknown_key=1)
    choices = reply.json()["choices"]
    assert status == 200 and [one["index"] for one in choices] == [0, 1, 2]
    assert all(one["confidence"] is None or 0 <= one["confidence"] <= 1 for one in choices)
    assert all("test answers" in one["orce"]["on_test_set"] and 0 <= one["orce"]["mean"] <= 1 for one in choices)
    _, repeated = post(address, messages=user(), n=3, temperature=1.0, seed=7)
    assert [one["message"] for one in repeated.json()["choices"]] == [one["message"] for one in choices]
    assert httpx2.get(f"{address}/v1/models", trust_env=False).json()["data"][0]["id"] == "small-judge"


def test_a_longer_conversation_goes_as_it_is(address):
    turns = [*user("Hello"), {"role": "assistant", "content": "Hi"}, *user()]
    status, reply = post(address, messages=turns, max_tokens=3)
    (found,) = reply.json()["choices"]
    assert status == 200 and found["orce"]["answer"] == (found["message"]["content"].strip() or None)


def test_a_stream_ends_with_the_confidence(address):
    _, whole = post(address, messages=user())
    _, reply = post(address, messages=user(), stream=True)
    events = [line.removeprefix("data: ") for line in reply.text.splitlines() if line]
    said, end = (json.loads(one)["choices"][0] for one in events[:2])
    expected = whole.json()["choices"][0]
    assert said["delta"] == expected["message"] and end["confidence"] == expected["confidence"]
    assert events[2:] == ["[DONE]"] and reply.headers["content-type"].startswith("text/event-stream")


BAD = {
    "messages: Field required": {},
    "messages.0.content: Input should be a valid string": {"messages": [{"role": "user", "content": [1]}]},
    "n: Input should be less than or equal to 32": {"messages": user(), "n": 1000},
    "messages.0.role: 'assistant'; the last message must be the user's": {"messages": [{"role": "assistant", "content": "x"}]},
    "not a text: surrogates not allowed (character 5)": {"messages": user("What \ud800?")},
    "not a text": {"messages": [{"role": "user", "content": "\udfff"}, {"role": "assistant", "content": "a"}, *user()]},
    "'question' is ' '; expected a text": {"messages": user(" ")},
    "'choices' is ['one']; expected a list of 2 to 26 texts": {"messages": user(), "choices": ["one"]},
}  # fmt: skip
LONG = "word " * 60
TOO_LONG = {
    "a message": {"messages": user(LONG)},
    "all messages together": {
        "messages": [*user(LONG), {"role": "assistant", "content": "a"}, *user()],
        "max_tokens": 9,
    },
    "the passage": {"messages": user(), "context": LONG, "max_tokens": 9},
    "the options": {"messages": user(), "choices": ["one", LONG], "max_tokens": 9},
    "the answers": {"messages": user(), "n": 32},
}


@pytest.mark.parametrize("words", BAD)
def test_a_wrong_request_is_one_line(words, address):
    status, reply = post(address, **BAD[words])
    assert status == 400 and words in reply.json()["error"]["message"] and "\n" not in reply.json()["error"]["message"]


@pytest.mark.parametrize("what", TOO_LONG)
def test_tokens_are_limited_wherever_they_come_from(what, loaded):
    of_any_form = assistant.Assistant(loaded.engine, judge.Judge(loaded.scorer.reader.lm))
    with serving(of_any_form if what in ("the passage", "the options") else loaded, longest=250) as address:
        status, reply = post(address, **TOO_LONG[what])
        assert status == 400 and re.search(r"takes \d+ tokens", reply.json()["error"]["message"])
        assert post(address, messages=user(), max_tokens=9)[0] == 200


RAW = {
    "nested a hundred thousand deep": b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "an integer of five thousand digits": b'{"messages": [], "seed": ' + b"1" * 5000 + b"}",
    "cut off": b'{"messages": [',
}


@pytest.mark.parametrize("what", RAW)
def test_a_body_that_cannot_be_read_is_one_line(what, address):
    reply = sent(address, RAW[what])
    assert reply.status_code == 400 and "\n" not in reply.json()["error"]["message"]


def test_a_large_body_is_refused_before_it_is_read(address):
    port = int(address.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {300 * 2**20}\r\n\r\n"
        client.sendall(head.encode())  # and nothing of the body
        assert client.recv(1000).startswith(b"HTTP/1.1 413 ")
    pieces = (b" " * 2**16 for _ in range(64))  # of no announced length
    assert sent(address, pieces).status_code == 413
    assert post(address, messages=user())[0] == 200


class Held:
    """An assistant whose model works until it is let go; `asked` are the questions that it began."""

    def __init__(self, loaded):
        self.loaded, self.asked, self.go = loaded, [], threading.Event()

    def reply(self, messages, *arguments):
        self.asked.append(messages[-1]["content"])
        assert self.go.wait(30)
        return self.loaded.reply(messages, *arguments)


@pytest.fixture
def busy(loaded):
    """(address, model) of a server whose model works on a first question."""
    held = Held(loaded)
    with serving(held) as address, ThreadPoolExecutor(20) as clients:
        clients.submit(post, address, messages=user("What is 1 + 1?"))
        until(lambda: held.asked)
        yield address, held, clients
        held.go.set()


def waiting(address):
    return httpx2.get(f"{address}/health", trust_env=False, timeout=60).json()["waiting"]


@pytest.mark.slow
def test_pages_are_served_while_the_model_works_and_a_full_queue_says_when_to_come_back(busy):
    address, held, clients = busy
    others = [clients.submit(post, address, messages=user()) for _ in range(15)]
    until(lambda: waiting(address) == 16)
    for page in ("/", "/health", "/reliability", "/v1/models"):
        assert httpx2.get(address + page, trust_env=False, timeout=60).status_code == 200
    status, reply = post(address, messages=user())
    assert status == 429 and int(reply.headers["Retry-After"]) >= 1
    assert reply.json()["error"]["message"] == f"16 requests are waiting; try again in {reply.headers['Retry-After']} s"
    held.go.set()
    assert {one.result()[0] for one in others} == {200}
    assert waiting(address) == 0


def test_a_client_that_leaves_is_skipped_if_its_turn_has_not_come(busy):
    address, held, clients = busy
    with pytest.raises(httpx2.TimeoutException):
        httpx2.post(
            f"{address}/v1/chat/completions", json={"messages": user("What is 2 + 2?")}, trust_env=False, timeout=0.3
        )
    until(lambda: waiting(address) == 1)
    last = clients.submit(post, address, messages=user("What is 3 + 3?"))
    held.go.set()
    assert last.result()[0] == 200
    assert held.asked == ["What is 1 + 1?", "What is 3 + 3?"]


def test_other_hosts_and_other_kinds_of_body_are_refused(address):
    assert post(address, {"Host": "evil.example"}, messages=user())[0] == 400
    plain = httpx2.post(
        f"{address}/v1/chat/completions", content=json.dumps({"messages": user()}),
        headers={"Content-Type": "text/plain"}, trust_env=False,
    )  # fmt: skip
    assert plain.status_code == 400, "what a form on another page could send"


def test_a_key_is_asked_for(loaded):
    with serving(loaded, key=KEY) as address:
        assert post(address, messages=user())[0] == 401
        assert post(address, {"Authorization": f"Bearer {KEY}"}, messages=user())[0] == 200
        assert KEY not in httpx2.get(address, trust_env=False).text


def test_what_serve_says_before_it_loads_a_model(folder, monkeypatch, capsys):
    def said(*arguments):
        assert main(["serve", "--model", str(folder), *arguments]) == 2
        return capsys.readouterr().err

    assert "--host 0.0.0.0 opens it to other machines: name a key" in said("--host", "0.0.0.0")
    assert "NO_SUCH: not set, and --key-variable names it" in said("--key-variable", "NO_SUCH")
    assert "--server and --server-model go together" in said("--server", "http://localhost:1/v1")
    assert "none.jsonl: no such file; --test names" in said("--test", "none.jsonl")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "orce serve needs FastAPI and uvicorn" in said() and "pip install '.[serve]'" in said()


@pytest.mark.slow
@pytest.mark.needs("chromium")
def test_the_page_shows_answer_confidence_and_diagram_without_another_network(address, loaded, tmp_path):
    expected = loaded.ask(QUESTION)
    with Browser(tmp_path / "browser", reaches=address.removeprefix("http://")) as window:
        window.open(address)
        until(lambda: window.evaluate("document.getElementById('diagram') !== null"))
        assert window.evaluate("document.querySelectorAll('#diagram .bin').length") >= 1
        window.evaluate(
            f"document.getElementById('question').value = {QUESTION!r}; document.querySelector('#form button').click()"
        )
        until(lambda: window.evaluate("!document.getElementById('result').hidden"))
        text = {
            name: window.evaluate(f"document.getElementById('{name}').textContent") for name in ("answer", "confidence")
        }
        assert text == {
            "answer": expected.text or "(no answer)",
            "confidence": f"{round(100 * expected.confidence)} %",
        }
        assert "test answers" in window.evaluate("document.getElementById('on-test-set').textContent")
        place = float(window.evaluate("document.getElementById('mark').getAttribute('x1')"))
        assert place == pytest.approx(320 * expected.confidence)
        assert window.evaluate("document.getElementById('mark').getAttribute('visibility')") == "visible"
        window.screenshot(tmp_path / "page.png")
        assert {url for url in window.requests if not url.startswith((address, "about:", "data:"))} == set()
        assert window.complaints == []
