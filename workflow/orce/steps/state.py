"""A confidence LLM states its confidence in the greedy answer to every test prompt (stated methods)."""

from orce import files, pairs, tasks
from orce.progress import Progress
from orce.steps import add_settings, read_prompts, settings


def add_arguments(parser):
    add_settings(parser)
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--samples", required=True)
    parser.add_argument("--weights", help="folder of the confidence LLM (default: the untrained model)")
    parser.add_argument("--out", required=True)


def run(args):
    options = settings(args.settings)
    items = greedy_answers(args.samples, read_prompts(args.prompts))
    weights = files.file_digest(f"{args.weights}/manifest.json") if args.weights else None
    tag = files.digest(options, items, weights)
    task, reader = tasks.get(options["task"]), None

    def work(chunk):
        nonlocal reader
        if reader is None:
            from orce import confidence, language_model

            reader = confidence.Reader(language_model.load(options["model"], args.weights), options["batch_size"])
        return statements(chunk, task, reader, options["readout"])

    progress = Progress(options["label"], len(items))
    for done in files.in_chunks(args.out, items, options["chunk"], tag, work):
        progress.update(done)


def greedy_answers(samples, examples: list[dict]) -> list[tuple[dict, dict]]:
    """(example, greedy record) of every test example."""
    found = {record["id"]: record for record in files.read_jsonl(samples, ("id", "split")) if record["split"] == "test"}
    missing = [example["id"] for example in examples if "greedy" not in found.get(example["id"], {})]
    if missing:
        raise files.BadInput(f"{samples}: no greedy answer for test id {missing[0]!r}; sample it again")
    return [(example, found[example["id"]]["greedy"]) for example in examples]


def statements(chunk, task, reader, readout: str) -> list[dict]:
    """Records {id, answer, correct, f1, confidence, raw} and, beside them, the mean of the distribution."""
    from orce import confidence

    prompts = [pairs.messages(task, example, greedy["answer"]) for example, greedy in chunk]
    records = []
    for (example, greedy), read in zip(chunk, confidence.state(reader, prompts), strict=True):
        base = {key: greedy[key] for key in ("answer", "correct", "f1")}
        stated = read.pop("confidence")
        value = read["mean"] if readout == "mean" else stated
        records.append({"id": example["id"], **base, "confidence": value, "stated": stated, **read})
    return records
