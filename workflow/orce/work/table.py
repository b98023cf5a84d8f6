"""The confidence LLM's distribution over the 101 values, for every RL pair: what candidates are drawn from."""

from orce import pairs, tasks


def items(request: dict) -> list[dict]:
    return pairs.load(tasks.get(request["task"]), request["surrogate"], request["prompts"])


def weights(request: dict) -> str:
    return request["weights"]


def serve(chunk, reader, request: dict) -> list[dict]:
    """Records {id, kappa, correct, stated, logprobs}; logprobs are of 0, 1, .., 100 percent."""
    readings = reader.read([pair["prompt"] for pair in chunk], state_text=False)
    return [
        {
            "id": pair["id"],
            "kappa": pair["kappa"],
            "correct": pair["correct"],
            "stated": reading.greedy / 100,
            "logprobs": [float(f"{value:.7g}") for value in reading.logprobs],
        }
        for pair, reading in zip(chunk, readings, strict=True)
    ]
