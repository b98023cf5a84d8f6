"""State the confidence of a confidence LLM in the greedy answer to every test prompt, or every validation prompt."""

from orce.artefacts import store
from orce.judging import state
from orce.judging.judge import READOUTS
from orce.stage_settings import State
from orce.stages import add_shard, open_reader, through_model
from orce.tasks.parts.splits import TESTED

Settings = State


def add_arguments(parser):
    add_shard(parser)
    parser.add_argument("--prompts", required=True, help="frozen test prompts")
    parser.add_argument("--samples", required=True, help="with the greedy answers")
    parser.add_argument("--split", default="test", choices=TESTED, help="of the prompts (default: test)")
    parser.add_argument(
        "--readout", choices=READOUTS, help="the value to use as `confidence` (default: none, as in a shard)"
    )
    parser.add_argument("--weights", help="folder of the confidence LLM (default: the untrained model)")


def run(settings: State, args):
    items = state.items(args.prompts, args.samples, args.split)
    digest = None if args.weights is None else store.weights_digest(args.weights)

    def load(fast):
        return open_reader(settings, fast, state.messages(items, settings))

    def work(chunk, reader):
        return state.records(chunk, reader, args.weights, settings)

    through_model(args, settings, items, "confidence", load, work, digest)
