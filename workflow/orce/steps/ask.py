"""The answer LLM gives answer and confidence in one text (prompted methods: Top-k, CoT)."""

from orce import engines, files, methods, tasks
from orce.progress import Progress
from orce.steps import add_settings, read_prompts, seed_of, settings

RETRY_TEMPERATURE = 0.7  # greedy decoding would only repeat the text that could not be read


def add_arguments(parser):
    add_settings(parser)
    parser.add_argument("--method", required=True)
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--out", required=True)


def run(args):
    options = settings(args.settings)
    examples = read_prompts(args.prompts)
    task, method, engine = tasks.get(options["task"]), methods.get(args.method), None

    def work(chunk):
        nonlocal engine
        if engine is None:
            engine = engines.get(options["engine"]["name"]).load(options["model"] | options["engine"])
        return answer(chunk, task, method, engine, options)

    progress = Progress(options["label"], len(examples))
    for done in files.in_chunks(
        args.out, examples, options["chunk"], files.digest(options, examples, args.method), work
    ):
        progress.update(done)


def answer(examples: list[dict], task, method, engine, options: dict) -> list[dict]:
    """Records {id, answer, correct, f1, confidence, raw, retried}; one retry where the confidence was unreadable."""
    records = generate(examples, task, method, engine, options, 0.0)
    again = [i for i, record in enumerate(records) if record["confidence"] is None]
    if again:
        second = generate([examples[i] for i in again], task, method, engine, options, RETRY_TEMPERATURE)
        for i, record in zip(again, second, strict=True):
            texts = [records[i]["raw"], record["raw"]]
            better = record if record["confidence"] is not None else records[i]
            records[i] = better | {"raw": texts, "retried": True}
    return records


def generate(examples, task, method, engine, options, temperature) -> list[dict]:
    prompts = [method.prompt(example, task, options) for example in examples]
    seeds = [seed_of(options["seed"], "ask", method.__name__, example["id"]) for example in examples]
    texts = engine.generate(prompts, 1, temperature, options["max_tokens"], seeds)
    records = []
    for example, (text,) in zip(examples, texts, strict=True):
        read, confidence = method.read(text, example, task, options)
        records.append(
            {"id": example["id"], "answer": read}
            | task.score(read, example)
            | {"confidence": confidence, "raw": text, "retried": False}
        )
    return records
