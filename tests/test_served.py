"""What servers send: each line of tests/data/served.jsonl through `orce.confidence`, against a server on this machine.

A line has the reply to each question ({content, tokens: [text, log-probability, bytes], finish}, or {status, error}; of a list the
next one each time), and what comes of it: answers, the mean log-probability of each, what is counted and said, or the error.
"""

import itertools
import json
import math

import pytest
from conftest import cases
from test_apis import Api

import orce
from orce.artefacts import files
from orce.errors import BadInput
from orce.llm.engines import openai

CASES = {f"{case['kind']}: {case['name']}": case for case in cases("served")}


def chat(reply, n):
    if "status" in reply:
        return reply["status"], {"error": reply["error"]}
    message = {key: value for key, value in reply.items() if key not in ("tokens", "finish")}
    choice = {"message": message, "finish_reason": reply.get("finish", "stop"), "logprobs": None}
    if "tokens" in reply:
        keys = ("token", "logprob", "bytes")
        choice["logprobs"] = {"content": [dict(zip(keys, token, strict=False)) for token in reply["tokens"]]}
    return 200, {"choices": [choice | {"index": i} for i in range(n)]}


@pytest.mark.parametrize("name", CASES)
def test_what_comes_of_it(name, tmp_path, capfd, direct, monkeypatch):
    monkeypatch.setattr(openai, "BACKOFF", 0.001)
    monkeypatch.setenv("ORCE_SPEED", json.dumps({"answers": {"max_retries": 2}}))
    case = CASES[name]
    replies = {asked: itertools.chain(said[:-1], itertools.repeat(said[-1])) if isinstance(said, list) else itertools.repeat(said)
               for asked, said in case["ask"].items()}  # fmt: skip

    def served(body, _):
        asked = next(asked for asked in replies if asked in body["messages"][-1]["content"])
        return chat(next(replies[asked]), body.get("n", 1))

    with Api(served) as server:
        options = {"server_model": "m", "samples": 2, "chunk": case.get("chunk", 256), "folder": tmp_path}
        arguments = server.address, [*case["ask"]], case.get("methods", ["likelihood", "agreement"])
        if "error" in case:
            with pytest.raises(BadInput) as error:
                orce.confidence(*arguments, **options)
            assert case["error"] in str(error.value) and "\n" not in str(error.value)
            return
        table = orce.confidence(*arguments, **options)
    if "answers" in case:
        assert [record["answer"] for record in table] == case["answers"]
    if "likelihood" in case:
        expected = [None if mean is None else pytest.approx(math.exp(mean), abs=1e-6) for mean in case["likelihood"]]
        assert table.confidence("likelihood") == expected
    spent = files.read_json(tmp_path / "results" / "questions" / "model" / "samples.manifest.json")["spent"]
    assert "left_out" not in spent and case.get("spent", {}).items() <= spent.items()
    assert len(server.bodies) == case.get("asked", len(server.bodies))
    heard = capfd.readouterr().err
    assert all(words in heard for words in case.get("said", [])), heard
