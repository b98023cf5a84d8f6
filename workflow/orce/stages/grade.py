"""Let a judge say which answers are right, and group those that mean the same.

`verdicts` has the judge's reply to each distinct answer, `disagreements` those that it grades otherwise than the task, and
`meanings` the comparisons of answers with each other.
"""

import argparse
import json
from typing import Any, TypeVar

from msgspec import UNSET
from msgspec.structs import asdict

from orce import tasks
from orce.answers import grades, meanings, sampling
from orce.artefacts import store
from orce.errors import BadInput
from orce.records import Example, Grouped, Sample, Verdict
from orce.runtime.progress import say
from orce.runtime.speed import speed
from orce.stage_settings import Asked, Grade, Meanings, Verdicts, plain
from orce.stages import Lazy, accounted, in_chunks, open_engine
from orce.tasks.parts.prompt_files import by_split

Settings = Grade

T = TypeVar("T", bound=Asked)


def add_arguments(parser):
    parser.add_argument("--prompts", nargs="+", required=True, metavar="SPLIT=FILE")
    parser.add_argument("--samples", required=True, help="with the exact grades")
    parser.add_argument("--verdicts", required=True)
    parser.add_argument("--disagreements", required=True)
    parser.add_argument("--meanings", help="where the settings have a group")
    parser.add_argument("--out", required=True)
    parser.add_argument("--manifest", required=True)


def run(settings: Grade, args):
    fast = speed("answers")
    task, items = tasks.get(settings.task), graded_items(args)
    judged, groups = judge(args, settings, fast, items, task)
    records = [judged.record(*item) for item in items]
    if groups:
        found = {one.key: one for one in groups}
        records = [
            record if record.greedy is UNSET else meanings.noted(record, example, found[record.key], task)
            for record, (_, example) in zip(records, items, strict=True)
        ]
    say(f"[{settings.label}] {judged}")
    store.write(args.disagreements, judged.disagreements, settings)
    facts = {
        "mode": settings.grading,
        "taken": "judge" if judged.judged else "exact",
        "disagreements": len(judged.disagreements),
    }
    store.write(args.out, records, settings, args.manifest, grading=facts | vars(judged.counts))


def graded_items(args) -> list[tuple[Sample, Example]]:
    """(record, example) of all samples. Raises BadInput for a record whose example is in no file of prompts."""
    splits = by_split(args.prompts)
    examples = {(split, example["id"]): example for split, example in sampling.items(splits)}
    records = store.records(args.samples, Sample)
    places = [record.key for record in records]
    if lost := [place for place in places if place not in examples]:
        raise BadInput(
            f"{args.samples}: {' '.join(lost[0])} is in none of {', '.join(splits.values())}; sample it again"
        )
    return [(record, examples[place]) for record, place in zip(records, places, strict=True)]


def judge(args, settings: Grade, fast: dict, items: list, task) -> tuple[grades.Grades, list[Grouped]]:
    """The grades of all answers, and the groups of those that were compared; a killed job goes on after its last chunk."""
    form, same = grades.grade_form(settings.prompt), grades.same_form()
    asked = grades.questions(items, task)
    compared = meanings.items(items, task) if args.meanings else []

    def start():
        conversations = [form.messages(**asdict(one)) for one in asked]
        if settings.group == "judge":
            longest = (sorted(one.answers, key=len)[-2:] for one in compared)
            pairs = [pair for pair in longest if len(pair) == 2]
            conversations += [same.messages(question="", one=pair[0], other=pair[1]) for pair in pairs]
        return open_engine(settings, fast, conversations, settings.max_tokens)

    with Lazy(start) as engine, Lazy(lambda: open_nli(settings, fast)) as nli:
        chunked(
            args.verdicts,
            part(settings, Verdicts),
            asked,
            fast["chunk"],
            lambda chunk: accounted(grades.verdicts(chunk, engine(), form, settings), engine()),
        )

        def group(chunk):
            if settings.group == "nli":
                return meanings.grouped(chunk, meanings.by_entailment(nli()))
            return accounted(meanings.grouped(chunk, meanings.by_judge(engine(), same, settings)), engine())

        if args.meanings:
            chunked(args.meanings, part(settings, Meanings), compared, fast["chunk"], group)
    groups = store.records(args.meanings, Grouped) if compared else []
    if unread := sum(pair.same is None for one in groups for pair in one.compared):
        say(f"[{settings.label}] {unread} comparisons of answers could not be read: these count as different")
    prefers = settings.grading == "judge" or settings.prefer == "judge"
    return grades.Grades(store.records(args.verdicts, Verdict) if asked else [], task, prefers), groups


def part(settings: Grade, kind: type[T]) -> T:
    """The settings that one of the step's files depends on, and the digests of what these name: a change of the others asks
    nothing again."""
    kept: dict[str, Any] = {name: getattr(settings, name) for name in kind.__struct_fields__}
    named = json.dumps(plain({name: value for name, value in kept.items() if name != "contents"}))
    kept["contents"] = {path: to for path, to in settings.contents.items() if json.dumps(path) in named}
    return kind(**kept)


def chunked(path: str, settings: Asked, items: list, chunk: int, work) -> None:
    in_chunks(argparse.Namespace(out=path, shard="0/1"), settings, items, chunk, work)


def open_nli(settings: Grade, fast: dict):
    """The NLI model, loaded where torch is needed at last."""
    from orce.llm import nli

    say(f"[{settings.label}] starting the NLI model")
    assert settings.nli is not None  # of group: nli
    return nli.load(settings.nli, fast["batch_tokens"])
