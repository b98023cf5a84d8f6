"""The result of a measurement: one record a question, with the confidence by method."""

import math
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from orce.apps import calibrate, given
from orce.artefacts import files, tables
from orce.errors import BadInput, printable

SHOWN = 10  # records of a printed table
QUESTION_WIDTH, ANSWER_WIDTH = 44, 20  # characters of a printed table's columns
RESERVED = ("id", "question", "answer", "reply", "correct", "decision")  # beside the methods
WORKBOOKS = ("xlsx", "xls", "ods")
# Rows whose confidences are too small for whole percents.
SMALL = {"sequence_probability"}
Record = dict[str, Any]


class Table(list[Record]):
    """Answers with their confidences, by `methods`.

    A record: {id, question, answer, reply, correct, confidence: {method: 0 to 1, or None for unreadable}, own: {method: {answer,
    correct}}, decision}, and what else its question came with. `reply`: the whole text, where the answer was read out of it;
    `correct` only where there is a label, `own` for methods that judge another answer than the greedy one, `decision` after
    `keep`.
    """

    def __init__(self, records: list[Record], methods: list[str]):
        super().__init__(records)
        self.records, self.methods = records, methods
        self.hints: list[str] = []  # what is said below the table
        self.decision = ""  # the last line, where a threshold was chosen
        self.by = methods[0]  # the method whose least confidences are shown first

    def confidence(self, method: str) -> list[float | None]:
        """The confidences of one method, in the order of the questions."""
        if method not in self.methods:
            raise BadInput(f"no method {method!r} in this table; it has {', '.join(self.methods)}")
        return [record["confidence"][method] for record in self]

    def correct(self, method: str) -> list[bool | None]:
        """Whether the answers that a method judges are right; None without a label. Raises BadInput where no answer has one."""
        if not any("correct" in record for record in self):
            raise BadInput("no labels, so nothing says which answers are right; give labels=[...]")
        return [_judged(record, method).get("correct") for record in self]

    def metrics(self) -> dict[str, Record]:
        """{method: its metrics with 95 % intervals}, as in the workflow's metrics.json; of the questions with labels."""
        by_method = {}
        for method in self.methods:
            rows = []
            values = zip(self, self.correct(method), self.confidence(method), strict=True)
            for line, right, value in values:
                if right is not None:
                    rows.append(_judged(line, method) | {"correct": right, "confidence": value})
            by_method[method] = given.metrics(rows)
        return by_method

    def keep(
        self,
        risk: float | None = None,
        coverage: float | None = None,
        by: str | None = None,
        delta: float = 0.05,
        calibration: str | Path | None = None,
    ) -> str:
        """Decide which answers to keep and which to review, by a threshold on the confidences of the method `by` (the first).

        The threshold is chosen on the questions with labels, or on the labelled records of the file `calibration`. risk: at most
        this share of the kept answers is wrong, with probability 1 - delta (learn-then-test, orce.apps.calibrate). coverage: this
        share of the answers is kept; nothing is promised about errors. Each record gets `decision`, "keep" or "review". Returns
        the line that says how many are kept and what is promised, which the printed table ends with.
        """
        check_wanted(risk, coverage, delta)
        by = by or self.methods[0]
        confidences = self.confidence(by)
        if calibration is None:
            known = self._labelled(by)
            source = "questions with a label"
        else:
            known = labelled_records(Path(calibration), by)
            source = f"records of {calibration}"
        if risk is not None:
            rule = _rule_for_risk(by, known, source, risk, delta)
        else:
            assert coverage is not None
            rule = _rule_for_coverage(known, source, confidences, coverage)
        for record, confidence in zip(self, confidences, strict=True):
            record["decision"] = "keep" if rule.keeps(confidence) else "review"
        unlabelled = [record for record in self if "correct" not in record]
        is_apart = calibration is None and bool(known) and bool(unlabelled)
        decided = unlabelled if is_apart else self
        kept = sum(record["decision"] == "keep" for record in decided)
        what = "questions without a label" if is_apart else "questions"
        least = ""
        if rule.threshold is not None:
            least = f" (`{by}` of at least {_number(rule.threshold)})"
        self.by = by
        self.decision = f"keep {kept} of {len(decided)} {what}{least}, review {len(decided) - kept}: {rule.promise}"
        return self.decision

    def _labelled(self, method: str) -> list[tuple[float | None, bool]]:
        """(confidence, correct) of each question with a label."""
        if not any("correct" in record for record in self):
            return []
        pairs = zip(self.confidence(method), self.correct(method), strict=True)
        return [(value, right) for value, right in pairs if right is not None]

    def to_pandas(self):
        """A DataFrame with a column for each method."""
        import pandas

        return pandas.DataFrame(map(_flat, self))

    def write(self, path: str | Path) -> None:
        """Write the records: CSV for a name in .csv, else JSON lines. Raises BadInput for the name of another kind of table."""
        if writable(path) != "csv":
            return files.write_jsonl(path, self)
        rows = [_flat(record) for record in self]
        there = dict.fromkeys(column for row in rows for column in row)
        columns = [name for name in RESERVED if name in there]
        columns += [name for name in there if name not in RESERVED]
        with files.atomic(path) as handle:
            lines = [[row.get(column, "") for column in columns] for row in rows]
            tables.write_csv(handle, [columns, *lines])

    def __repr__(self) -> str:
        """The least sure answers first: those are the ones to look at."""
        has_labels = any("correct" in record for record in self)
        labels = ["correct"] if has_labels else []
        decisions = ["decision"] if self.decision else []
        rows = [["question", "answer", *labels, *self.methods, *decisions]]
        least_first = sorted(self, key=lambda record: _order(record["confidence"][self.by]))
        for record in least_first[:SHOWN]:
            values = [record["confidence"][name] for name in self.methods]
            marks = [_mark(record.get("correct")) for _ in labels]
            question = _beginning(printable(record["question"]), QUESTION_WIDTH)
            answer = _end(printable(record["answer"] or "-"), ANSWER_WIDTH)
            decided = [record["decision"] for _ in decisions]
            rows.append([question, answer, *marks, *map(_number, values), *decided])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        layout = "  ".join(f"{{:{'<' if i < 2 else '>'}{width}}}" for i, width in enumerate(widths))
        lines = [layout.format(*row) for row in rows]
        if len(self) > SHOWN:
            lines.append(f"... {len(self) - SHOWN} more, of a higher confidence ({self.by})")
        lines += map(printable, self.hints)
        if self.decision:
            lines.append(printable(self.decision))
        return "\n".join(lines)


def check_wanted(risk: float | None, coverage: float | None, delta: float) -> None:
    """Raises BadInput if a threshold cannot be chosen for these numbers."""
    if (risk is None) == (coverage is None):
        raise BadInput(
            "a threshold is for a risk or for a coverage: give one of them, such as risk=0.1 (--threshold-for-risk 0.1)"
        )
    for name, value in (("risk", risk), ("coverage", coverage), ("delta", delta)):
        whole = name == "coverage" and value == 1
        if value is not None and not 0 < value < 1 and not whole:
            raise BadInput(f"{name} is {value:g}; expected a number between 0 and 1, such as 0.1")


def writable(path: str | Path) -> str:
    """The kind that a file's name says. Raises BadInput for a kind that would be read otherwise than it is written."""
    if Path(path).is_dir():
        raise BadInput(f"{path} is a folder; name a file in .jsonl or .csv")
    kind = tables.kind(Path(path))
    is_packed = Path(path).suffix.lower() in tables.PACKED[1:]
    is_other = kind in {*tables.KINDS, *WORKBOOKS} - {"jsonl", "csv"}
    if is_other or is_packed:
        raise BadInput(
            f"{path}: results are written as JSON lines or CSV; name a file in .jsonl or .csv"
        )
    return kind


def labelled_records(path: Path, method: str) -> list[tuple[float | None, bool]]:
    """(confidence, correct) of the labelled records of a file: of what `Table.write` wrote, or with one `confidence` each."""
    pairs = []
    for where, record in tables.records(path):
        own = record.get("own") or {}
        correct = own.get(method, record).get("correct", record.get(f"{method}_correct"))
        if correct is None:
            continue
        confidence = record.get("confidence", record.get(method))
        if isinstance(confidence, dict):
            confidence = confidence.get(method)
        if "confidence" not in record and method not in record:
            raise BadInput(
                f"{where}: no confidence of {method!r}; it has {', '.join(map(str, record))}"
            )
        if correct not in (True, False):
            raise BadInput(f"{where}: 'correct' is {correct!r}; expected true or false")
        confidence = tables.judgement(confidence)
        pairs.append((tables.probability(where, confidence), bool(correct)))
    return pairs


class Rule(NamedTuple):
    """Which confidences are kept. threshold: None where none will do; promise: what is said of it."""

    keeps: Callable[[float | None], bool]
    threshold: float | None
    promise: str


def _rule_for_risk(
    by: str, known: list[tuple[float | None, bool]], source: str, risk: float, delta: float
) -> Rule:
    """By learn-then-test on the labelled confidences `known`. Raises BadInput where there are none."""
    if not known:
        raise BadInput(
            "a threshold for a risk is chosen on answers known to be right or wrong, and none is; "
            "give some questions a reference"
        )
    scale, unscale = (calibrate.spread, calibrate.unspread) if by in SMALL else (_same, _same)
    stated = [scale(value) for value, _ in known]
    correct = [right for _, right in known]
    selection = calibrate.threshold_for_risk(stated, correct, risk, delta)

    def keeps(confidence: float | None) -> bool:
        return selection.keeps(scale(confidence))

    of = f"{selection.n} {source}"
    if selection.threshold is None:
        return Rule(keeps, None, f"no threshold ensures a risk of {risk:g}; {selection.needed}")
    promise = (
        f"the true error rate of those kept is at most {risk:.3g} with probability {1 - delta:g}, if they are of the same kind as "
        f"the {of}, of which it keeps {selection.kept} with {selection.errors} wrong"
    )
    return Rule(keeps, unscale(selection.threshold), promise)


def _rule_for_coverage(
    known: list[tuple[float | None, bool]],
    source: str,
    confidences: list[float | None],
    coverage: float,
) -> Rule:
    """By the share of the labelled confidences `known` that is kept, or of all `confidences` where none is labelled."""
    stated = [value for value, _ in known] or confidences
    threshold = calibrate.threshold_for_coverage(stated, coverage)

    def keeps(confidence: float | None) -> bool:
        return confidence is not None and confidence >= threshold

    right = [right for value, right in known if keeps(value)]
    count = f", of these {len(right)} {right.count(False)} wrong" if known else ""
    of = source if known else "questions"
    promise = (
        f"{sum(map(keeps, stated))} of {len(stated)} {of} have that{count}; "
        "nothing is promised about errors (a threshold for a risk does)"
    )
    return Rule(keeps, threshold, promise)


def _same(value: Any) -> Any:
    return value


def _judged(record: Record, method: str) -> Record:
    """The mapping with the answer that a method judges and its `correct`: the method's own, or the record."""
    return record.get("own", {}).get(method, record)


def _order(confidence: float | None) -> float:
    return -math.inf if confidence is None else confidence


def _mark(correct: bool | None) -> str:
    return "" if correct is None else "yes" if correct else "no"


def _number(confidence: float | None) -> str:
    """Three decimals, or two significant digits of what these would not tell apart from 0."""
    if confidence is None:
        return "-"
    return f"{confidence:.3f}" if confidence >= 0.01 or confidence == 0 else f"{confidence:.1e}"


def _beginning(text: str, width: int) -> str:
    return textwrap.shorten(text, width, placeholder="...") or text[:width]


def _end(text: str, width: int) -> str:
    """The end of a text: a sentence has its answer there."""
    words = " ".join(text.split())
    if len(words) <= width:
        return words
    kept = words[-(width - 3) :]
    return f"...{kept.partition(' ')[2] or kept}"


def _flat(record: Record) -> Record:
    """A column for each method, and METHOD_answer and METHOD_correct for an answer of its own."""
    own = {}
    for name, its in record.get("own", {}).items():
        own |= {f"{name}_{key}": value for key, value in its.items()}
    columns = {key: value for key, value in record.items() if key not in ("confidence", "own")}
    return columns | record["confidence"] | own
