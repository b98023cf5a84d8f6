"""Take the confidences of a method that ran elsewhere."""

from typing import Annotated, Self

from orce import stages, tasks
from orce.artefacts import store
from orce.config import picking
from orce.given import records as given_records
from orce.runtime.process import say
from orce.settings.schema import Config, GivenFile
from orce.settings.stage import TaskSettings, to_mapping


class ImportConfidencesSettings(TaskSettings, kw_only=True):
    source: GivenFile

    @classmethod
    def of(cls, config: Config, dataset: str, model: str, method: str) -> Self:
        source = picking.given_confidences(config, dataset, model, method)
        return picking.pick(cls, config, method, dataset, model, source=source)


def run(
    settings: ImportConfidencesSettings,
    prompts: Annotated[str, "frozen test prompts"],
    samples: Annotated[str, "with the greedy answers"],
    out: str,
):
    """Reads a file of given confidences and the greedy answers; writes confidences.jsonl."""
    path = settings.source.path
    task = tasks.get(settings.task)
    items = stages.read_tested(prompts, samples)
    given = given_records.read_given(settings.source, "confidence")
    given_records.require_examples(given, [example for example, _ in items], path)
    records = []
    for example, record in items:
        where, row = given[example["id"]]
        records.append(given_records.make_confidence(where, row, record.greedy, example, task))
    unread = sum(record.confidence is None for record in records)
    unused = len(given) - len(records)
    left = f"; {unused} for other questions left out" if unused else ""
    counted = f"{len(records)} confidences of {path}, {unread} of them unreadable"
    say(f"[{settings.label}] {counted}{left}")
    store.write(out, records, settings, given=to_mapping(settings.source))
