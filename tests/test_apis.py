"""Three APIs as they are: one like vllm serve, one like Ollama, a hosted one with a reasoning model. Over real sockets.

Each is a server on this machine that takes and refuses what its model does, in its own words; the configuration is checked,
and the steps run with the settings that the workflow gives them.
"""

import itertools
import json
import math

import pytest
import yaml
from conftest import cases, own_config, prompts_words
from servers import Api, choice

import orce
from orce import stages
from orce.__main__ import main
from orce.artefacts import files
from orce.config import check as configuration
from orce.config import picking
from orce.errors import BadInput
from orce.llm.engines import openai, replies
from orce.settings.load import merge
from orce.settings.stage import to_argument

SECRET = "sk-hosted-0123456789"
FULL = {"prompt_tokens": 40, "completion_tokens": 3, "total_tokens": 43}


def town(body) -> str:
    """The right answer to every other question."""
    number = int("".join(filter(str.isdigit, body["messages"][-1]["content"].split("?")[0])))
    return f"Answer: Town {number if number % 2 else number + 1}"


def vllm(body, headers):
    """Takes n, seed, logprobs and chat_template_kwargs; says cached tokens."""
    choices = [choice(town(body), i) for i in range(body.get("n", 1))]
    if body.get("logprobs"):
        first, last = town(body).rsplit(" ", 1)
        choices[0]["logprobs"] = {"content": [{"token": first, "logprob": -0.25}, {"token": last, "logprob": -0.75}]}
    return 200, {"choices": choices, "usage": FULL | {"prompt_tokens_details": {"cached_tokens": 32}}}


def ollama(body, headers):
    """Ignores n, logprobs and the key; has the thoughts in the content; an error is a bare text."""
    if body["model"] != "qwen3:4b":
        return 404, {"error": f'model "{body["model"]}" not found, try pulling it first'}
    return 200, {"choices": [choice(f"<think>\nTown 99?\n</think>\n\n{town(body)}")], "usage": FULL}


def refused(message, parameter):
    error = {"message": message, "type": "invalid_request_error", "param": parameter, "code": "unsupported_parameter"}
    return 400, {"error": error}


def hosted(body, headers):
    """A reasoning model: refuses max_tokens, temperature, seed, n and logprobs; thinks first, and may use its budget up."""
    if headers.get("Authorization") != f"Bearer {SECRET}":
        return 401, {"error": {"message": f"Incorrect API key provided: {headers.get('Authorization')}"}}
    if "max_tokens" in body:
        return refused("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", "max_tokens")
    if body.get("temperature", 1) != 1:
        return refused("Unsupported value: 'temperature' does not support 0.7. Only the default (1) value is supported.", "temperature")  # fmt: skip
    if "logprobs" in body:
        return 403, {"error": {"message": "You are not allowed to request logprobs from this model"}}
    if "seed" in body:
        return refused("Unrecognized request argument supplied: seed", None)
    if body.get("n", 1) > 1:
        return refused("This model takes n = 1 alone.", "n")
    details = {"completion_tokens_details": {"reasoning_tokens": 64}, "prompt_tokens_details": {"cached_tokens": 16}}
    if body["max_completion_tokens"] < 100:
        return 200, {"choices": [choice("", reason="length")], "usage": FULL | details}
    return 200, {"choices": [choice(town(body), reasoning_content="Town 99?")], "usage": FULL | details}


def asking(server, model="m", rows=("consistency",), **api) -> dict:
    """A configuration of six questions, in the current folder, to one model of a server."""
    files.write_jsonl("test.jsonl", [{"question": f"Where is {i}?", "answer": f"Town {i}"} for i in range(6)])
    spec = {"task": "qa", "source": {"path": "test.jsonl"}, "fields": {"question": "question", "answer": "answer"}}
    asked = {"label": "API", "source": {"server": server, "model": model}, "confidence": "small"}
    models = {"api": asked | ({"api": api} if api else {}), "small": {"label": "Small", "source": {"path": "weights"}}}
    engine = {"concurrency": 4, "max_retries": 1}
    return own_config("towns", spec, models, [*rows], answers={"samples": 3}, engine=engine)


@pytest.fixture
def run(folder, monkeypatch, capfd, direct):
    """run(reply, **api): (exit code, samples, manifest, what was said, server) of stage one in a fresh folder."""
    monkeypatch.setattr(openai, "BACKOFF", 0.01)

    def stage(reply, model="m", rows=("consistency",), **api):
        with Api(reply) as server:
            config = configuration.check(asking(server.address, model, rows, **api))
            monkeypatch.setenv("ORCE_SPEED", json.dumps(picking.speed_settings(config)))
            frozen, out = folder / "prompts.jsonl", folder / "samples.jsonl"
            assert main(prompts_words(stages.pick_settings("prompts", config, "towns"), frozen)) == 0
            sampling = to_argument(stages.pick_settings("sample", config, "towns", "api"))
            code = main(["sample", "--settings", sampling, "--prompts", f"test={frozen}", "--out", str(out)])
        said = capfd.readouterr().err
        assert SECRET not in said
        if code:
            return code, [], {}, said, server
        return code, files.read_jsonl(out), files.read_json(out.with_suffix(".manifest.json")), said, server

    return stage


def test_like_vllm_serve_with_token_probabilities_and_fields_of_ones_own(run):
    # Most of these names only look like names of secrets.
    request = {
        "reasoning_effort": "low", "prompt_cache_key": "orce", "stop_token_ids": [1], "thinking": {"budget_tokens": 9},
        "eos_token": "x",
    }  # fmt: skip
    rows = ["consistency", "likelihood"]
    code, records, manifest, said, server = run(vllm, rows=rows, logprobs=True, request=request)
    assert code == 0 and "left out" not in said
    assert [one["correct"] for one in records] == [[i % 2 == 1] * 3 for i in range(6)]
    assert all(request.items() <= body.items() and "seed" in body for body in server.bodies)
    assert sorted(body.get("n", 0) for body in server.bodies) == [0] * 6 + [3] * 6
    assert [body["temperature"] for body in server.bodies if body.get("logprobs")] == [0] * 6
    spent = {"requests": 12, "prompt_tokens": 480, "cached_tokens": 384, "completion_tokens": 36}
    assert manifest["spent"] == spent


def test_ollama_gives_one_choice_thinks_aloud_and_names_a_model_that_it_lacks(run):
    code, records, manifest, said, server = run(ollama, model="qwen3:4b", rows=["likelihood"], logprobs=True)
    assert code == 0 and len(server.bodies) == 6 * 4, "three samples and the greedy answer, one choice each"
    assert all(one["raw"] == [one["greedy"]["raw"]] * 3 and "think" not in one["raw"][0] for one in records)
    assert [one["greedy"]["correct"] for one in records] == [False, True] * 3
    assert manifest["spent"]["left_out"] == ["logprobs"] and manifest["spent"]["requests"] == 24
    assert "qwen3:4b: takes no logprobs, which is left out from now on" in said
    code, *_, said, server = run(ollama, model="qwen9")
    assert code == 2 and 'refuses the request: 404 model "qwen9" not found, try pulling it first' in said
    assert len(server.bodies) <= 4


def test_a_hosted_reasoning_model_is_learnt(run, monkeypatch):
    code, *_, said, server = run(hosted, key="HOSTED_KEY")
    assert code == 2 and not server.bodies
    assert "HOSTED_KEY: not set, and the configuration names it as a server's key; export HOSTED_KEY=..." in said
    monkeypatch.setenv("HOSTED_KEY", SECRET)
    api = {"key": "HOSTED_KEY", "reasoning_tokens": 4000, "logprobs": True}
    code, records, manifest, said, server = run(hosted, **api)
    assert code == 0 and [one["correct"] for one in records] == [[i % 2 == 1] * 3 for i in range(6)]
    assert len(server.bodies) == 24 + 5, "each of the five is learnt by one request"
    last = server.bodies[-1]
    assert not {"temperature", "seed", "n", "max_tokens", "logprobs"} & last.keys()
    assert last["max_completion_tokens"] == 4048
    spent = manifest["spent"]
    assert spent["left_out"] == ["logprobs", "seed", "temperature"]
    assert spent["requests"] == 24 and spent["reasoning_tokens"] == 24 * 64 and spent["cached_tokens"] == 24 * 16
    assert said.count("takes no temperature, which is left out from now on: it samples at its own temperature") == 1


@pytest.mark.slow
def test_requests_and_tokens_a_minute_are_kept(run):
    *_, server = run(vllm, requests_per_minute=1200)
    # The times are those of arrival: a busy machine delays single ones, and never shortens the whole.
    assert len(server.times) == 12 and max(server.times) - min(server.times) > 11 * 0.05 - 0.1
    # A budget of 48 for each answer is reckoned with, and corrected to the 43 tokens that were counted.
    *_, server = run(vllm, tokens_per_minute=12 * 43 * 60)
    assert max(server.times) - min(server.times) > 0.6


def test_nonsense_in_place_of_counts_is_no_count(run):
    mixed = {"prompt_tokens": -1, "completion_tokens": True}
    usages = itertools.cycle([None, [], {"prompt_tokens": "7"}, mixed, {"prompt_tokens_details": 3}])
    code, _, manifest, _, _ = run(lambda body, _: (200, {"choices": [choice(town(body))], "usage": next(usages)}))
    assert code == 0 and manifest["spent"] == {"requests": 24}
    assert replies.tokens({"input_tokens": 3, "cache_read_input_tokens": 2}) == {"prompt_tokens": 3, "cached_tokens": 2}


HIDDEN = "S3cr3t-w0rd"


@pytest.mark.parametrize(("said", "over"), cases("wrong_apis"))
def test_the_check_says_what_an_api_cannot_and_prints_no_secret(said, over, folder):
    with pytest.raises(BadInput) as error:
        configuration.check(merge(asking("http://localhost:1/v1"), over))
    message = str(error.value)
    assert all(words in message for words in said)
    assert "\n" not in message and HIDDEN not in message


@pytest.mark.parametrize("address", cases("secret_addresses"))
def test_a_secret_in_an_address_is_refused_at_every_door_and_not_printed(address, folder, capfd):
    address = address.format(HIDDEN)
    (folder / "config.yaml").write_text(yaml.safe_dump(asking(address)))
    assert main(["plan"]) == 2
    for server_model in ([], ["--server-model", "m"]):
        assert main(["measure", "test.jsonl", "--model", address, *server_model, "--out", "out.jsonl"]) == 2
    said = capfd.readouterr()
    assert len(said.err.splitlines()) == 3 and HIDDEN not in said.out + said.err
    assert "models.api.source" in said.err.splitlines()[0]
    left = [path for path in folder.rglob("*") if path.is_file() and path.name != "config.yaml"]
    assert all(HIDDEN not in path.read_text() for path in left)


def test_rates_and_keys_rerun_nothing(folder):
    address = "http://localhost:1/v1"
    paces = {"key": "MINE", "requests_per_minute": 10, "tokens_per_minute": 10}
    plain, paced = (configuration.check(asking(address, **api)) for api in ({}, paces))
    before, after = (stages.pick_settings("sample", one, "towns", "api") for one in (plain, paced))
    assert before == after
    assert picking.speed_settings(paced)["answers"]["rates"][f"{address} m"]["key"] == "MINE"


# What servers send to `orce.confidence`. A line has the reply to each question ({content, tokens: [text, log-probability, bytes],
# finish}, or {status, error}; of a list the next one each time), and what comes of it: answers, the mean log-probability of each,
# what is counted and said, or the error.
SERVED = {f"{case['kind']}: {case['name']}": case for case in cases("served")}


@pytest.mark.parametrize("name", SERVED)
def test_what_comes_of_what_a_server_sends(name, folder, capfd, direct, monkeypatch):
    monkeypatch.setattr(openai, "BACKOFF", 0.001)
    monkeypatch.setenv("ORCE_SPEED", json.dumps({"answers": {"max_retries": 2}}))
    case = SERVED[name]
    left = {asked: [*said] if isinstance(said, list) else [said] for asked, said in case["ask"].items()}

    def served(body, _):
        said = next(said for asked, said in left.items() if asked in body["messages"][-1]["content"])
        reply = {"finish": "stop"} | (said.pop(0) if len(said) > 1 else said[0])
        if "status" in reply:
            return reply["status"], {"error": reply["error"]}
        logprobs = None
        if "tokens" in reply:
            keys = ("token", "logprob", "bytes")
            logprobs = {"content": [dict(zip(keys, one, strict=False)) for one in reply.pop("tokens")]}
        made = choice(reason=reply.pop("finish"), **reply) | {"logprobs": logprobs}
        return 200, {"choices": [made | {"index": i} for i in range(body.get("n", 1))]}

    with Api(served) as server:
        options = {"server_model": "m", "samples": 2, "chunk": case.get("chunk", 256), "folder": folder}
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
    spent = files.read_json(folder / "results" / "questions" / "model" / "samples.manifest.json")["spent"]
    assert "left_out" not in spent and case.get("spent", {}).items() <= spent.items()
    assert len(server.bodies) == case.get("asked", len(server.bodies))
    heard = capfd.readouterr().err
    assert all(words in heard for words in case.get("said", [])), heard
