"""What the tests of vllm look at, computed in a process of its own: python vllm_session.py TASK.json RESULT.json.

vllm changes the process that it runs in (threads, memory policy), and starting it is what takes the time.
"""

import json
import os
import sys
from pathlib import Path

from orce.errors import BadInput
from orce.llm import engines
from orce.runtime import process

process.pause_collection()
vllm = engines.get("vllm")


# Environments and further settings that ask for more memory than there is, or more context than the model has.
TOO_LITTLE = [
    ({"VLLM_CPU_KVCACHE_SPACE": "0"}, {}),
    ({"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}, {"max_model_len": 100_000}),
    ({"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "0"}, {"max_model_len": 100_000}),
]


def message(call, *arguments) -> str | None:
    try:
        call(*arguments)
    except BadInput as error:
        return str(error)


def main(task: dict) -> dict:
    messages = []
    for environment, settings in TOO_LITTLE:
        os.environ.update(environment)
        messages.append(message(vllm.load, task["model"] | settings))
    process.resume_collection()  # vllm collects all garbage whenever an engine ends
    return {"messages": messages, "sampling": sampling(task["model"] | {"name": "vllm"}, task["questions"])}


def sampling(settings: dict, questions: list) -> dict:
    seeds = [7919 * i for i in range(len(questions))]
    longest = engines.longest(settings, questions, 12)
    engine = vllm.load(settings, longest)
    found = {
        "longest": longest,
        "max_model_len": engine.llm.model_config.max_model_len,
        "first": engine.generate(questions, 4, 0.7, 12, seeds),
        "second": engine.generate(questions, 4, 0.7, 12, seeds),
        "reversed": engine.generate(questions[::-1], 4, 0.7, 12, seeds[::-1])[::-1],
        "greedy": engine.generate(questions, 2, 0.0, 12, seeds),
        "too long": message(engine.generate, questions, 1, 0.0, longest, seeds),
    }
    engine.close()
    return found


if __name__ == "__main__":
    result = main(json.loads(Path(sys.argv[1]).read_text()))
    Path(sys.argv[2]).write_text(json.dumps(result))
