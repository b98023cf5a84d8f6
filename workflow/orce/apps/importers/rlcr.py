"""RLCR's released outputs (Damani et al., 2025; github.com/damanimehul/RLCR, eval_outputs/): Arrow or Parquet files of
`datasets`, with METHOD-output_0, ..., METHOD-evals and METHOD-confidence_levels for each method beside problem and answer.

Each method has answers of its own. Those of one (--method) are the samples; the first is the greedy one (temperature 0).
"""

import re
from collections.abc import Iterator
from typing import Any

from orce.apps.importers.row import Row, confidence, judgement, letter
from orce.errors import BadInput

OPTIONS = re.compile(r"^[ \t]*([A-Z])\)[ \t]*(.*?)\s*(?=^[ \t]*[A-Z]\)|\Z)", re.MULTILINE | re.DOTALL)
RIGHT = re.compile(r"Option ([A-Z]) which is\b")


def read(path: str, options) -> Iterator[Row]:
    """The rows of one file. options: method, question, id, judgements of the command line."""
    records = _records(path)
    names = [name.removesuffix("-output_0") for name in records[0] if name.endswith("-output_0")]
    if not names:
        raise BadInput(f"{path}: no column METHOD-output_0; its columns are {', '.join(records[0])}")
    if options.method and options.method not in names:
        raise BadInput(f"{path}: no method {options.method!r}; there are {', '.join(names)}")
    for i, record in enumerate(records):
        yield _row(f"{path}, row {i}", record, names, options)


def _records(path: str) -> list[dict[str, Any]]:
    import pyarrow
    import pyarrow.ipc
    import pyarrow.parquet

    try:
        if path.endswith(".parquet"):
            records = pyarrow.parquet.read_table(path).to_pylist()
        else:
            with pyarrow.memory_map(path) as source:
                records = pyarrow.ipc.open_stream(source).read_all().to_pylist()
    except pyarrow.ArrowInvalid as error:
        raise BadInput(f"{path}: not an Arrow or Parquet file ({error})") from None
    if not records:
        raise BadInput(f"{path}: no rows")
    return records


def _row(place: str, record: dict[str, Any], names: list[str], options) -> Row:
    chosen = options.method or names[0]
    row = Row(place, _text(place, record, options.question or "problem"), _answers(record, chosen), id=str(record["id"]) if "id" in record else None)  # fmt: skip
    row.question, row.choices, row.reference = _options(place, row.question, _text(place, record, "answer"))
    judged = {name: _judgements(place, record, name) for name in names} if options.judgements == "keep" else {}
    row.correct = judged.get(chosen)
    for name in names:
        levels = record.get(f"{name}-confidence_levels")
        if levels:
            own = {"correct": judged[name][0]} if judged else {}
            stated = confidence(f"{place}, {name}", levels[0])
            row.stated[name] = {"confidence": stated, "answer": _answers(record, name)[0]} | own
    return row


def _answers(record: dict[str, Any], name: str) -> list[str | None]:
    return [record[f"{name}-output_{i}"] for i in range(sum(key.startswith(f"{name}-output_") for key in record))]


def _judgements(place: str, record: dict[str, Any], name: str) -> list[bool]:
    given = record.get(f"{name}-evals")
    if not isinstance(given, list) or len(given) != len(_answers(record, name)):
        raise BadInput(
            f"{place}: {name}-evals is {given!r}; expected a judgement for each output, or --judgements drop"
        )
    return [judgement(place, one) for one in given]


def _text(place: str, record: dict[str, Any], name: str) -> str:
    if not isinstance(record.get(name), str) or not record[name].strip():
        raise BadInput(f"{place}: {name!r} is {record.get(name)!r}; expected a text; columns are {', '.join(record)}")
    return record[name]


def _options(place: str, problem: str, answer: str) -> tuple[str, list[str] | None, str | list[str]]:
    """Question, options and right letter of a problem whose answer is 'Option B which is ...'; else the text and its answer."""
    right = RIGHT.match(answer)
    if not right:
        return problem, None, [answer]
    # The last list of options that begins with A: a question may hold lettered lines of its own.
    every = list(OPTIONS.finditer(problem))
    first = max((i for i, one in enumerate(every) if one[1] == "A"), default=len(every))
    listed = every[first:]
    if [one[1] for one in listed] != [letter(i) for i in range(len(listed))] or right[1] not in [
        one[1] for one in listed
    ]:
        raise BadInput(f"{place}: problem has the options {', '.join(one[1] for one in listed) or 'none'}, and the answer is {answer!r}")  # fmt: skip
    return problem[: listed[0].start()].strip(), [one[2].strip() for one in listed], right[1]
