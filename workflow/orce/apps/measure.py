"""How sure a model is of its answers to questions in a file, by any method that trains nothing. See docs/measure.md."""

import json
from pathlib import Path

from orce.apps.door import CHUNK, confidence
from orce.artefacts import files, tables
from orce.errors import BadInput
from orce.runtime.process import USUAL, say

METRICS = ("accuracy", "ece", "brier", "auroc", "aurc")  # on the screen


def add_arguments(parser):
    parser.add_argument("questions", help="a file with a question a line: .jsonl, .csv, .tsv, .json or .parquet")
    parser.add_argument("--fields", **tables.OPTION)
    parser.add_argument("--model", required=True, help="folder, hub id (ID or ID@REVISION), or address of a server")
    parser.add_argument("--server-model", help="the model's name on the server")
    parser.add_argument("--methods", type=names, help="a,b: names, or Python files (default: likelihood,agreement)")
    parser.add_argument("--judge", help="folder of a trained confidence LLM: the row `judge`")
    parser.add_argument("--out", required=True, help="the scored questions: .jsonl or .csv")
    parser.add_argument("--metrics", help="a JSON file for the metrics by method; the questions need references")
    parser.add_argument("--folder", help="keeps what is finished (default: --out with .work for its ending)")
    parser.add_argument("--settings", type=json.loads, help='of methods, as JSON: {"topk": {"k": 2}}')
    parser.add_argument("--task", help="how questions are shown and answers read (default: qa, or choice)")
    parser.add_argument("--samples", type=int, default=10, help="K, answers sampled to each question (default: 10)")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--max-tokens", type=int, help="budget of an answer (default: the task's)")
    parser.add_argument("--shots", type=int, help="worked examples, for a task that has some")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--engine", default="transformers", help="transformers (default) or vllm")
    parser.add_argument("--device", help="cpu, cuda (all visible GPUs), cuda:1, ... (default: one GPU if there is any)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), help="default: float32 on a CPU")
    parser.add_argument("--template-kwargs", type=json.loads, help="a JSON object for the chat template")
    parser.add_argument("--chunk", type=int, default=CHUNK, help="questions between two writes")
    parser.add_argument("--batch-tokens", type=int, default=USUAL["batch_tokens"], help="tokens computed together")


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def run(args):
    given = vars(args).copy()
    out, metrics = given.pop("out"), given.pop("metrics")
    if Path(out).resolve() == Path(args.questions).resolve():
        raise BadInput(f"--out {out} is the input; name another file")
    given["fields"] = tables.fields(args.fields)
    given["folder"] = args.folder or Path(out).with_suffix(".work")
    table = confidence(**given)
    table.write(out)
    print(table)
    if metrics is None and "correct" not in table[0]:
        return
    by_method = table.metrics()
    for method, values in by_method.items():
        shown = (f"{name} {values[name]:.4f}" for name in METRICS if values[name] is not None)
        say(f"[measure] {method}: {', '.join(shown)}")
    if metrics is not None:
        files.write_json(metrics, by_method)
