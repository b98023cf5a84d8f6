"""Ask a question: the answer LLM's answer, and the judge's confidence in it. Without a question, one for each line of input."""

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from orce.errors import BadInput
from orce.judging import judge
from orce.runtime.progress import printable

if TYPE_CHECKING:
    from orce.apps.service.assistant import Reply
    from orce.apps.service.observed import Diagram


def add_arguments(parser):
    add_source(parser)
    parser.add_argument("question", nargs="?", help="the question (default: each line of standard input)")
    parser.add_argument("--choices", nargs="+", metavar="TEXT", help="the options of a multiple-choice question")
    parser.add_argument("--context", help="a passage that the question is about")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def add_source(parser) -> None:
    """The arguments that say who answers and who judges; `source` and `assistant` read them."""
    parser.add_argument("--model", required=True, help="folder of a trained confidence LLM, or its id on the hub")
    parser.add_argument("--base", help="the model under it, which answers, if not the recorded one")
    parser.add_argument("--server", metavar="URL", help="an OpenAI-compatible server that answers instead")
    parser.add_argument("--server-model", metavar="NAME", help="the server's name of its model")
    parser.add_argument(
        "--server-key", metavar="NAME", help="environment variable with its key (default: OPENAI_API_KEY)"
    )
    parser.add_argument("--task", help="ask and read answers as this task does (default: the one it was trained on)")
    parser.add_argument("--test", metavar="FILE", help="confidences.jsonl of its test set (default: its run's)")
    parser.add_argument("--readout", choices=judge.READOUTS, default="stated", help="what the confidence is")
    parser.add_argument("--device", help="cpu, cuda (all visible GPUs), cuda:1, ... (default: one GPU if there is any)")


def assistant(args):
    """(assistant, diagram of the judge's test set or None) of the arguments."""
    from orce.apps.service import assistant, observed

    if (args.server is None) != (args.server_model is None):
        raise BadInput("--server and --server-model go together: an address, and the server's name of its model")
    server = None if args.server is None else assistant.Server(args.server, args.server_model, args.server_key)
    test = observed.read(args.test, judge.located(args.model))
    return assistant.load(args.model, args.base, server, args.task, args.device, args.readout), test


def run(args):
    answering, test = assistant(args)
    lines = (line.strip() for line in sys.stdin) if args.question is None else [args.question]
    for question in filter(None, lines):
        reply = answering.ask(question, args.choices, args.context)
        print(json.dumps(asdict(reply), ensure_ascii=False) if args.json else shown(reply, test), flush=True)


def shown(reply: "Reply", test: "Diagram | None") -> str:
    """Answer, confidence and how such confidences held on the test set, for a terminal."""
    value, stated = reply.confidence, "no confidence"
    if value is not None:
        stated = f"confidence {value:.2f} (mean of its distribution {reply.mean:.2f})"
    seen = [] if test is None else [f"  {test.sentence(value)}"]
    text = " / ".join(printable(line) for line in reply.text.strip().splitlines() if line.strip())
    read = "" if reply.answer in (None, text) else f"  (read as {printable(str(reply.answer))})"
    return "\n".join([f"{text or '(no answer)'}{read}", f"  {stated}", *seen])
