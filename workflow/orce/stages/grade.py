"""Let a grader say which answers are right, and group those that mean the same.

`verdicts` has the grader's reply to each distinct answer, `disagreements` those that it grades otherwise than the task, and
`meanings` the comparisons of answers with each other.
"""

import argparse

from msgspec import UNSET
from msgspec.structs import asdict, replace

from orce import tasks
from orce.answers import grades, meanings, sampling
from orce.artefacts import store
from orce.errors import BadInput
from orce.records import Grouped, Sample, Verdict
from orce.runtime.progress import say
from orce.runtime.seeds import seed_of
from orce.runtime.speed import speed
from orce.stage_settings import Grade
from orce.stages import Lazy, accounted, in_chunks, open_engine
from orce.tasks.parts.prompt_files import by_split
from orce.text.prompting import TEMPLATES

Settings = Grade


def add_arguments(parser):
    parser.add_argument("--prompts", nargs="+", required=True, metavar="SPLIT=FILE")
    parser.add_argument("--samples", required=True, help="with the exact grades")
    parser.add_argument("--verdicts", required=True)
    parser.add_argument("--disagreements", required=True)
    parser.add_argument("--meanings", help="where the settings have a group")
    parser.add_argument("--out", required=True)
    parser.add_argument("--manifest", required=True)


def run(settings: Grade, args):
    fast, task, splits = speed("answers"), tasks.get(settings.task), by_split(args.prompts)
    examples = {(split, example["id"]): example for split, example in sampling.items(splits)}
    sampled = store.records(args.samples, Sample)
    if lost := [record.key for record in sampled if record.key not in examples]:
        raise BadInput(
            f"{args.samples}: {' '.join(lost[0])} is in none of {', '.join(splits.values())}; sample it again"
        )
    items = [(record, examples[record.key]) for record in sampled]
    form, same = grades.grade_form(settings.prompt), grades.Form(TEMPLATES / "same_meaning.j2", grades.TWO)
    asked = grades.questions(items, task)
    compared = meanings.items(items, task) if args.meanings else []

    def start():
        conversations = [form.messages(**asdict(one)) for one in asked]
        if settings.group == "grader":
            longest = (sorted(one.answers, key=len)[-2:] for one in compared if len(one.answers) > 1)
            conversations += [same.messages(question="", one=one, other=other) for one, other in longest]
        return open_engine(settings, fast, conversations, settings.max_tokens)

    def start_nli():
        from orce.llm.nli import Nli

        assert settings.nli is not None  # of group: nli
        say(f"[{settings.label}] starting the NLI model")
        return Nli(settings.nli, fast["batch_tokens"])

    def replies(conversations):
        seeds = [seed_of(settings.seed, "grade", turns[-1]["content"]) for turns in conversations]
        return [text for (text,) in engine().generate(conversations, 1, 0.0, settings.max_tokens, seeds)]

    def verdicts(chunk):
        said = replies([form.messages(**asdict(one)) for one in chunk])
        lines = [
            Verdict(**asdict(one), right=form.verdict(text), raw=text) for one, text in zip(chunk, said, strict=True)
        ]
        return accounted(lines, engine())

    def says(pairs):
        if settings.group == "nli":
            labels = nli().labels([(f"{question} {one}", f"{question} {other}") for question, one, other in pairs])
            return [(label == "entailment", label) for label in labels]
        texts = replies([same.messages(question=question, one=one, other=other) for question, one, other in pairs])
        return [(same.verdict(text), text) for text in texts]

    def groups(chunk):
        lines = meanings.grouped(chunk, says)
        return accounted(lines, engine()) if settings.group == "grader" else lines

    def chunked(path, of, items, work):
        in_chunks(argparse.Namespace(out=path, shard="0/1"), of, items, fast["chunk"], work)

    with Lazy(start) as engine, Lazy(start_nli) as nli:
        chunked(args.verdicts, without_group(settings), asked, verdicts)
        if args.meanings:
            chunked(args.meanings, settings, compared, groups)
    records, differ, counts = grades.graded(items, store.records(args.verdicts, Verdict) if asked else [], task)
    if compared:
        found = {one.key: one for one in store.records(args.meanings, Grouped)}
        records = [
            record if record.greedy is UNSET else meanings.noted(record, example, found[record.key], task)
            for record, (_, example) in zip(records, items, strict=True)
        ]
        if unread := sum(pair.same is None for one in found.values() for pair in one.compared):
            say(f"[{settings.label}] {unread} comparisons of answers could not be read: these count as different")
    say(
        f"[{settings.label}] {counts['asked']} distinct answers asked about; the grader alone says right of "
        f"{counts['only_grader']} answers, the exact grade alone of {counts['only_exact']}"
    )
    if counts["unread"]:
        say(f"[{settings.label}] {counts['unread']} replies could not be read: the exact grade counts there")
    store.write(args.disagreements, differ, settings)
    store.write(args.out, records, settings, args.manifest, grading={**counts, "disagreements": len(differ)})


def without_group(settings: Grade) -> Grade:
    """What the verdicts depend on: another `group` asks for none of them again."""
    nli = settings.nli and settings.nli.source.path
    contents = {path: digest for path, digest in settings.contents.items() if path != nli}
    return replace(settings, group="none", nli=None, contents=contents)
