"""Say how alike the samples of each test question are: the cosine of their embeddings, for methods that read a K x K matrix."""

from orce import tasks
from orce.answers import similarity, tested
from orce.runtime.progress import say
from orce.stage_settings import Similarities
from orce.stages import add_shard, through_model

Settings = Similarities


def add_arguments(parser):
    add_shard(parser)
    parser.add_argument("--prompts", required=True, help="frozen test prompts")
    parser.add_argument("--samples", required=True)


def run(settings: Similarities, args):
    task = tasks.get(settings.task)
    items = [
        (example["id"], similarity.texts(record.seen(), example, task, "similarity"))
        for example, record in tested.items(args.prompts, args.samples)
    ]

    def load(fast):
        from orce.llm import embedding

        say(f"[{settings.label}] loading the embedding model")
        return embedding.load(settings.embedding, fast["batch_tokens"])

    def work(chunk, embedder):
        distinct = sorted({text for _, texts in chunk for text in texts if text is not None})
        vectors = dict(zip(distinct, embedder.vectors(distinct), strict=True))
        return [{"id": name, "similarity": similarity.cosine(texts, vectors).tolist()} for name, texts in chunk]

    through_model(args, settings, items, "confidence", load, work)
