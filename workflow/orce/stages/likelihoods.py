"""Score the greedy answers with the answer LLM itself: token log-probabilities and P(True)."""

from orce.answers import likelihoods, tested
from orce.runtime.progress import say
from orce.stage_settings import Likelihoods
from orce.stages import add_shard, through_model

Settings = Likelihoods


def add_arguments(parser):
    add_shard(parser)
    parser.add_argument("--prompts", required=True, help="frozen test prompts")
    parser.add_argument("--samples", required=True, help="with the greedy answers")


def run(settings: Likelihoods, args):
    items = tested.items(args.prompts, args.samples)

    def load(fast):
        from orce.llm import scoring

        say(f"[{settings.label}] loading the answer LLM")
        return scoring.load(settings.model, fast["batch_tokens"])

    def work(chunk, scorer):
        return likelihoods.records(chunk, scorer, settings)

    through_model(args, settings, items, "confidence", load, work)
