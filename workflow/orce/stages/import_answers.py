"""Take answers made elsewhere as the samples of a model, in place of stage one."""

from typing import Self

from orce import stages, tasks
from orce.artefacts import store
from orce.config import picking
from orce.given import records as given_records
from orce.runtime.process import say
from orce.settings.schema import Config, GivenFile
from orce.settings.stage import TaskSettings, to_mapping
from orce.tasks import rows


class ImportAnswersSettings(TaskSettings, kw_only=True):
    source: GivenFile

    @classmethod
    def of(cls, config: Config, dataset: str, model: str) -> Self:
        source = picking.given_answers(config, dataset, model)
        assert source is not None  # a rule asks for a cell with given answers alone
        return picking.pick(cls, config, "import_answers", dataset, model, source=source)


def run(settings: ImportAnswersSettings, prompts: stages.Prompts, out: str, manifest: str):
    """Reads a file of given answers and the frozen prompts; writes samples.jsonl, graded by their
    labels or else by the task.
    """
    path = settings.source.path
    task = tasks.get(settings.task)
    given = given_records.read_given(settings.source)
    records = []
    for split, file in prompts.items():
        examples = stages.read_prompts(file)
        given_records.require_examples(given, examples, path)
        of_split = []
        for example in examples:
            answers = rows.read_answers(*given[example["id"]])
            of_split.append(given_records.make_sample(answers, split, example, task))
        if line := stages.near_miss_report(of_split, examples, task):
            say(f"[{settings.label}] {split}: {line}")
        records += of_split
    if len(records) < len(given):
        say(f"[{settings.label}] {len(records)} of the {len(given)} records of {path}")
    store.write(out, records, settings, manifest, given=to_mapping(settings.source))
