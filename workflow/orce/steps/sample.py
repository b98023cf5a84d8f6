"""Stage one: the answer LLM samples K answers to every prompt, and one greedy answer to every test prompt."""

from orce import engines, files, tasks
from orce.progress import Progress, say
from orce.steps import add_settings, read_prompts, seed_of, settings


def add_arguments(parser):
    add_settings(parser)
    parser.add_argument("--prompts", nargs="+", required=True, metavar="SPLIT=FILE")
    parser.add_argument("--shard", default="0/1", help="I/N: every N-th prompt, from the I-th")
    parser.add_argument("--out", required=True)


def run(args):
    options = settings(args.settings)
    shard, shards = map(int, args.shard.split("/"))
    items = []
    for pair in args.prompts:
        split, _, path = pair.partition("=")
        items += [(split, example) for example in read_prompts(path)]
    items = items[shard::shards]
    tag = files.digest(options, items, args.shard)
    task, engine = tasks.get(options["task"]), None

    def work(chunk):
        nonlocal engine
        if engine is None:
            say(f"[{options['label']}] starting the engine {options['engine']['name']}")
            engine = engines.get(options["engine"]["name"]).load(options["model"] | options["engine"])
        return answer(chunk, task, engine, options)

    progress = Progress(options["label"], len(items))
    for done in files.in_chunks(args.out, items, options["chunk"], tag, work):
        progress.update(done)


def answer(chunk: list[tuple[str, dict]], task, engine, options: dict) -> list[dict]:
    """Records {id, split, answers, raw, correct} and, for test items, greedy {answer, raw, correct, f1}."""
    prompts = [task.prompt(example, options["shots"]) for _, example in chunk]
    seeds = [seed_of(options["seed"], "answers", example["id"]) for _, example in chunk]
    limit = options["max_tokens"] or task.MAX_TOKENS
    texts = engine.generate(prompts, options["samples"], options["temperature"], limit, seeds, options["top_p"])
    records = [record(split, example, drawn, task) for (split, example), drawn in zip(chunk, texts, strict=True)]
    tested = [i for i, (split, _) in enumerate(chunk) if split == "test"]
    if tested:
        greedy = engine.generate([prompts[i] for i in tested], 1, 0.0, limit, [seeds[i] for i in tested])
        for i, (text,) in zip(tested, greedy, strict=True):
            records[i]["greedy"] = judged(text, chunk[i][1], task)
    return records


def record(split: str, example: dict, texts: list[str], task) -> dict:
    read = [judged(text, example, task) for text in texts]
    return {
        "id": example["id"],
        "split": split,
        "answers": [one["answer"] for one in read],
        "raw": texts,
        "correct": [one["correct"] for one in read],
    }


def judged(text: str, example: dict, task) -> dict:
    read = task.extract(text, example)
    return {"answer": read, "raw": text} | task.score(read, example)
