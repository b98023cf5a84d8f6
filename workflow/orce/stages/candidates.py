"""Sample M candidate confidences for every RL pair from the confidence LLM (section 3.3)."""

from orce.answers import realised
from orce.artefacts import store
from orce.judging import candidate_distributions
from orce.stage_settings import Candidates
from orce.stages import add_shard, open_reader, through_model

Settings = Candidates


def add_arguments(parser):
    add_shard(parser)
    realised.add_arguments(parser)
    parser.add_argument("--weights", required=True, help="folder of the confidence LLM")


def run(settings: Candidates, args):
    items = realised.from_arguments(args, settings)

    def load(fast):
        return open_reader(settings, fast, [pair.prompt for pair in items])

    def work(chunk, reader):
        return candidate_distributions.records(chunk, reader, args.weights, settings)

    through_model(args, settings, items, "confidence", load, work, store.weights_digest(args.weights))
