"""vllm on the CPU, for real: sampling, its messages, and that nothing of it stays behind."""

import ctypes.util
import json
import os
import signal
import subprocess
import sys
import time

import needs
import pytest
import small_matrix
from conftest import ARITHMETIC, ROOT, program, sample_words
from transformers import AutoTokenizer

from orce import tasks
from orce.artefacts import files
from orce.errors import BadInput
from orce.llm import engines
from orce.llm.chat import prompts_ids

pytestmark = [pytest.mark.slow, pytest.mark.needs("numa")]

MODEL = {"dtype": "float32", "device": "cpu", "template_kwargs": {}}
QUESTIONS = 8
MARK = "ORCE_TEST_MARK"  # in the environment of every process that is started here: a folder


def arithmetic(n: int) -> list[dict]:
    return tasks.get(ARITHMETIC).load({"size": n}, "test", 0)


@pytest.fixture(scope="module")
def session(smollm2, tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("session")
    task = tasks.get(ARITHMETIC)
    questions = [task.prompt(example, None) for example in arithmetic(QUESTIONS)]
    request = {"model": MODEL | {"source": {"path": smollm2}}, "questions": questions}
    files.write_json(folder / "task.json", request)
    words = [ROOT / "tests" / "vllm_session.py", folder / "task.json", folder / "result.json"]
    program(sys.executable, *words, check=True, **{MARK: str(folder)})
    return json.loads((folder / "result.json").read_text()) | {"request": request, "folder": folder}


@pytest.mark.needs("mounts")
def test_a_machine_without_libnuma_is_told_what_to_install(tmp_path):
    library = ctypes.util.find_library("numa")
    hidden = f"for file in $(ldconfig -p | grep -F {library} | sed 's/.*=> //'); do mount --bind /dev/null $file; done"
    model = MODEL | {"source": {"path": str(tmp_path)}}
    script = f"from orce.llm.engines import vllm\nvllm.start({model}, 64)"
    line = [*needs.mounting(), "sh", "-c", f'{hidden}; exec "$0" -c "$1"', sys.executable, script]
    done = program(*line)
    assert "BadInput: engine.name: vllm on the CPU needs libnuma" in done.stderr.splitlines()[-1]
    assert done.stderr.endswith("apt-get install libnuma1\n")


def test_answers_are_seeded_drawn_apart_and_greedy_ones_those_of_transformers(session):
    found = session["sampling"]
    assert found["first"] == found["second"] == found["reversed"]
    assert all(len(row) == 4 for row in found["first"])
    assert sum(len(set(row)) > 1 for row in found["first"]) > QUESTIONS / 2
    engine = engines.get("transformers").load(session["request"]["model"])
    expected = engine.generate(session["request"]["questions"], 2, 0.0, 12, [0] * QUESTIONS)
    same = sum(a == b for a, b in zip(found["greedy"], expected, strict=True))
    assert same >= QUESTIONS - 1  # kernels differ in the last digits, so a near-tie may fall the other way


def test_the_context_is_as_long_as_the_longest_prompt_and_its_answer_and_more_is_refused(session):
    tokenizer = AutoTokenizer.from_pretrained(session["request"]["model"]["source"]["path"])
    needed = max(map(len, prompts_ids(tokenizer, session["request"]["questions"]))) + 12
    found = session["sampling"]
    assert needed <= found["max_model_len"] == found["longest"] < 2 * needed
    assert found["longest"].bit_count() == 1  # so that graphs compiled for one task serve the next
    assert "tokens and needs" in found["too long"]


def test_a_prompt_longer_than_the_models_context_is_named_before_anything_is_loaded(smollm2):
    prompts = [[{"role": "user", "content": "short"}], [{"role": "user", "content": "Long " * 9000}]]
    with pytest.raises(BadInput, match="begins 'Long Long .* of 8192"):
        engines.longest(MODEL | {"source": {"path": smollm2}, "name": "vllm"}, prompts, 10)


def test_too_little_memory_is_one_line_and_no_process_outlives_its_session(session):
    nothing, little, beyond = session["messages"]
    assert "VLLM_CPU_KVCACHE_SPACE (GiB, here 0)" in nothing
    assert "4.29 GiB KV cache is needed" in little and "(1.0 GiB)" in little
    assert "lower engine.max_model_len (here 100000)" in little
    assert "8192" in beyond and "lower engine.max_model_len" in beyond
    assert not any("\n" in message for message in session["messages"])
    assert small_matrix.marked(MARK, session["folder"]) == []


def test_a_terminated_step_leaves_no_process_behind(smollm2, tmp_path):
    prompts, model = tmp_path / "sft.jsonl", MODEL | {"source": {"path": smollm2}}
    files.write_jsonl(prompts, arithmetic(200))
    speed = {"answers": {"chunk": 4, "gpu_memory_utilization": 0.9, "max_model_len": 512}}
    words = sample_words(model, "vllm", prompts, tmp_path / "out.jsonl", samples=4, temperature=0.7, max_tokens=12)
    around = os.environ | {MARK: str(tmp_path), "ORCE_SPEED": json.dumps(speed)}
    step = subprocess.Popen([sys.executable, "-m", "orce", *words], env=around)
    while step.poll() is None and not [*tmp_path.glob(".partial/*/*.jsonl")]:
        time.sleep(0.2)
    assert step.poll() is None  # it was at work when it was ended
    step.send_signal(signal.SIGTERM)
    assert step.wait() == 128 + signal.SIGTERM
    assert small_matrix.marked(MARK, tmp_path) == []
