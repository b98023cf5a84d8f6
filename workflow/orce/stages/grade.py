"""Let a grader say which answers are right, and group those that mean the same.

`verdicts` has the grader's reply to each distinct answer, `disagreements` those that it grades
otherwise than the task, and `meanings` the comparisons of answers with each other.
"""

from collections import Counter
from typing import Annotated, Self

from msgspec import UNSET, convert
from msgspec.structs import asdict, replace

from orce import stages, tasks
from orce.artefacts import store
from orce.artefacts.records import Sample
from orce.config import picking
from orce.errors import BadInput
from orce.given import grading
from orce.given.grading import Distinct, Grouping, Verdict
from orce.runtime.process import say, seed_of
from orce.settings.schema import Config
from orce.settings.stage import Encoder, ModelSettings, Source
from orce.text import TEMPLATES


class GradeSettings(ModelSettings, kw_only=True):
    """prompt: the template of the question, the package's own by default; group: none, grader or
    nli; grades: false where a model only groups the answers and their exact grades count.
    """

    engine: str
    max_tokens: int
    seed: int
    prompt: str | None = None
    group: str
    nli: Encoder | None = None
    grades: bool = True

    @classmethod
    def of(cls, config: Config, dataset: str, model: str) -> Self:
        spec = config.grading
        assert spec is not None  # a rule asks for graded cells alone
        nli = (
            Encoder(source=convert(spec.nli, Source), dtype=config.dtype, device=config.device)
            if spec.nli
            else None
        )
        more = {
            "group": spec.group,
            "max_tokens": spec.max_tokens,
            "prompt": spec.prompt,
            "nli": nli,
        }
        more["grades"] = spec.grades and spec.model is not None
        return picking.pick(cls, config, "grade", dataset, model, loads=spec.model or "", **more)


def run(
    settings: GradeSettings,
    prompts: stages.Prompts,
    samples: Annotated[str, "with the exact grades"],
    verdicts: str,
    disagreements: str,
    out: str,
    manifest: str,
    meanings: Annotated[str | None, "where the settings have a group"] = None,
):
    task = tasks.get(settings.task)
    sampled = store.records(samples, Sample)
    examples = {
        (split, example["id"]): example
        for split, path in prompts.items()
        for example in stages.read_prompts(path)
    }
    if lost := [record.key for record in sampled if record.key not in examples]:
        raise BadInput(
            f"{samples}: {' '.join(lost[0])} is in none of {', '.join(prompts.values())}; sample it again"
        )
    items = [(record, examples[record.key]) for record in sampled]
    form = grading.grade_form(settings.prompt)
    same = grading.Form(TEMPLATES / "same_meaning.j2", grading.SAMPLE_PAIR)
    answers = (
        (text, example)
        for record, example in items
        for text, _ in grading.answers_with_grades(record)
        if text is not None
    )
    asked = (
        list(dict.fromkeys(grading.ask_grader(*answer, task) for answer in answers))
        if settings.grades
        else []
    )
    compared = [
        Distinct(
            record.id,
            record.split,
            task.question(example),
            [*grading.distinct_answers(record, example, task).values()],
        )
        for record, example in items
        if meanings and record.greedy is not UNSET
    ]

    def start(fast):
        conversations = [form.messages(**asdict(question)) for question in asked]
        if settings.group == "grader":
            longest = (
                sorted(row.answers, key=len)[-2:] for row in compared if len(row.answers) > 1
            )
            conversations += [same.messages(question="", one=a, other=b) for a, b in longest]
        return stages.open_engine(settings, fast, conversations, settings.max_tokens)

    def start_nli(fast):
        from orce.llm.reading import Nli

        assert settings.nli is not None  # of group: nli
        say(f"[{settings.label}] starting the NLI model")
        return Nli(settings.nli, fast["batch_tokens"])

    def replies(conversations):
        seeds = [seed_of(settings.seed, "grade", turns[-1]["content"]) for turns in conversations]
        return [
            text for (text,) in engine().generate(conversations, 1, 0.0, settings.max_tokens, seeds)
        ]

    def graded(chunk, _):
        texts = replies([form.messages(**asdict(question)) for question in chunk])
        pairs = zip(chunk, texts, strict=True)
        return [
            Verdict(**asdict(question), right=form.verdict(text), raw=text)
            for question, text in pairs
        ]

    def says(pairs):
        if settings.group == "nli":
            labels = nli().labels(
                [(f"{question} {a}", f"{question} {b}") for question, a, b in pairs]
            )
            return [(label == "entailment", label) for label in labels]
        texts = replies(
            [same.messages(question=question, one=a, other=b) for question, a, b in pairs]
        )
        return [(same.verdict(text), text) for text in texts]

    with (
        stages.LazyModel(start, "answers") as engine,
        stages.LazyModel(start_nli, "answers") as nli,
    ):
        # What the verdicts depend on: another `group` asks for none of them again.
        nli_path = settings.nli and settings.nli.source.path
        contents = {path: digest for path, digest in settings.contents.items() if path != nli_path}
        alone = replace(settings, group="none", nli=None, contents=contents)
        stages.write_in_chunks(alone, asked, verdicts, engine, graded, kind="answers")
        if meanings:
            model = nli if settings.group == "nli" else engine
            stages.write_in_chunks(
                settings,
                compared,
                meanings,
                model,
                lambda chunk, _: grading.group_by_meaning(chunk, says),
                kind="answers",
            )
    records = [record for record, _ in items]
    differ = []
    counts = Counter[str]()
    lines = []
    if settings.grades:
        records, differ, counts = grading.apply_verdicts(
            items, store.records(verdicts, Verdict) if asked else [], task
        )
        right = f"right of {counts['only_grader']} answers, the exact grade alone of {counts['only_exact']}"
        lines.append(
            f"{counts['asked']} distinct answers asked about; the grader alone says {right}"
        )
    if counts["unread"]:
        lines.append(f"{counts['unread']} replies could not be read: the exact grade counts there")
    if compared:
        groups = {group.key: group for group in store.records(meanings, Grouping)}
        records = [
            record
            if record.greedy is UNSET
            else grading.note_meanings(record, example, groups[record.key], task)
            for record, (_, example) in zip(records, items, strict=True)
        ]
        if unread := sum(
            pair["same"] is None for group in groups.values() for pair in group.compared
        ):
            lines.append(
                f"{unread} comparisons of answers could not be read: these count as different"
            )
    for line in lines:
        say(f"[{settings.label}] {line}")
    store.write(disagreements, differ, settings)
    store.write(out, records, settings, manifest, grading={**counts, "disagreements": len(differ)})
