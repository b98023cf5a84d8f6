"""Read hidden states at the ends of questions, answers and judges' prompts, for probes."""

from orce.answers import states
from orce.answers.surrogate import read_surrogate
from orce.runtime.progress import say
from orce.stage_settings import States
from orce.stages import add_shard, through_model
from orce.tasks.parts.prompts import by_split, read_prompts

Settings = States


def add_arguments(parser):
    add_shard(parser)
    parser.add_argument("--prompts", nargs="+", required=True, metavar="SPLIT=FILE", help="frozen prompts")
    parser.add_argument("--samples", required=True, help="with the answers")
    parser.add_argument("--surrogate", required=True, help="with the realised answers of the training splits")


def run(settings: States, args):
    prompts = {split: read_prompts(path) for split, path in by_split(args.prompts).items()}
    items = states.items(prompts, args.samples, read_surrogate(args.surrogate))

    def load(fast):
        from orce.llm import hidden

        say(f"[{settings.label}] loading the model")
        return hidden.load(settings.model, settings.depths, fast["batch_tokens"])

    def work(chunk, encoder):
        return states.records(chunk, encoder, settings)

    through_model(args, settings, items, "confidence", load, work)
