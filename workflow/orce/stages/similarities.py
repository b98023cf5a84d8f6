"""Say how alike the samples of each test question are: the cosine of their embeddings, for methods that read a K x K matrix."""

from orce import tasks
from orce.answers import similarity, tested
from orce.artefacts import store
from orce.runtime.progress import say
from orce.runtime.speed import speed
from orce.stage_settings import Similarities

Settings = Similarities


def add_arguments(parser):
    parser.add_argument("--prompts", required=True, help="frozen test prompts")
    parser.add_argument("--samples", required=True)
    parser.add_argument("--out", required=True)


def run(settings: Similarities, args):
    from orce.llm import embedding

    task = tasks.get(settings.task)
    items = [
        (example["id"], similarity.texts(record, example, task, "similarity"))
        for example, record in tested.items(args.prompts, args.samples)
    ]
    say(f"[{settings.label}] loading the embedding model")
    embedder = embedding.load(settings.embedding, speed("confidence")["batch_tokens"])
    distinct = sorted({text for _, texts in items for text in texts if text is not None})
    vectors = dict(zip(distinct, embedder.vectors(distinct), strict=True))
    records = [{"id": name, "similarity": similarity.cosine(texts, vectors).tolist()} for name, texts in items]
    store.write(args.out, records, settings)
