"""Compute confidences from samples and likelihoods (measured methods: consistency, P(True),
semantic entropy).
"""

from typing import Annotated, Any

from msgspec import UNSET

from orce import methods, stages, tasks
from orce.artefacts import store
from orce.artefacts.records import Confidence, Number, Tested
from orce.config import picking
from orce.errors import BadInput
from orce.given import grading
from orce.given import records as given_records
from orce.methods.samples import APART, BY_MEANING, all_apart
from orce.runtime.process import say
from orce.settings.stage import to_mapping
from orce.tasks import without_reference


def run(
    task: str,
    method: str,
    prompts: str,
    samples: str,
    out: str,
    likelihoods: Annotated[str | None, "for methods that read them"] = None,
    sample_likelihoods: Annotated[
        str | None, "for methods that read the samples' log-probabilities"
    ] = None,
):
    """Reads samples and, for some methods, likelihoods; writes confidences.jsonl of a measured
    method. Nothing is generated or trained.
    """
    task_module = tasks.get(task)
    measured = methods.load(method)
    scored = {}
    if likelihoods:
        scored[likelihoods] = read_by_id(likelihoods, "logprobs", "p_true")
    if sample_likelihoods:
        scored[sample_likelihoods] = read_by_id(sample_likelihoods, "sample_logprobs")
    items = stages.read_tested(prompts, samples)
    records = []
    for example, record in items:
        by_meaning = grading.ByMeaning(task_module, record)
        asked = without_reference(example)  # a user's method does not see which is right
        if measured.state:
            answer, confidence = measured.state(record.answers, asked, by_meaning)
            judged = given_records.score_answer(record, answer, example, task_module)
            records.append(Confidence.of(example, judged, confidence, record.answers))
            continue
        seen: dict[str, Any] = {**record.seen()}
        if not likelihoods and "logprobs" in measured.reads:
            seen["logprobs"] = server_logprobs(record, samples)
        for path, by_id in scored.items():
            if record.id not in by_id:
                unscored = f"no record of id {record.id!r} of {prompts}"
                raise BadInput(f"{path}: {unscored}; {store.remake_hint(path)}")
            seen |= by_id[record.id]
        confidence = measured.measure(seen, asked, by_meaning)
        records.append(Confidence.of(example, record.greedy, confidence, record.greedy.raw))
    ungrouped = [(record.answers, example) for example, record in items if record.meanings is UNSET]
    if method in BY_MEANING and all_apart(ungrouped, task_module):
        say(f"[{method}] {APART}")
    store.write(out, records, to_mapping(picking.with_contents({"task": task, "method": method})))


def read_by_id(path: str, *keys: str) -> dict[str, dict]:
    return {row["id"]: row for row in store.read(path, ("id", *keys))}


def server_logprobs(record: Tested, samples: str) -> list[Number]:
    """The log-probabilities that a server gave of a greedy answer's tokens; an empty answer has
    none.
    """
    if record.greedy.logprobs is not UNSET:
        return record.greedy.logprobs
    if record.greedy.raw.strip():
        missing = f"no log-probabilities of the answer to {record.id!r}: the server gave none"
        raise BadInput(f"{samples}: {missing}; leave out the row")
    return []
