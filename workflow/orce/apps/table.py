"""The result of a measurement: one record a question, with the confidence by method."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from orce.apps import calibrate, given
from orce.artefacts import files, tables
from orce.errors import BadInput, printable
from orce.runtime.modules import typed

SHOWN = 10  # records of a printed table
QUESTION_WIDTH = 44  # characters of a printed table's columns
ANSWER_WIDTH = 20
MARKS = {None: "", True: "yes", False: "no"}  # of `correct`
RESERVED = ("id", "question", "answer", "reply", "correct", "decision")  # beside the methods
# Kinds of tables that are read, or that a user may mean, and are not written.
UNWRITTEN = {*tables.KINDS, "xlsx", "xls", "ods"} - {"jsonl", "csv"}
# Methods whose confidences are too small for whole percents.
SMALL = {"sequence_probability"}
Record = dict[str, Any]
Labelled = list[tuple[float | None, bool]]  # (confidence, correct) of labelled answers


class Table(list[Record]):
    """Answers with their confidences, by `methods`.

    A record: {id, question, answer, reply, correct, confidence: {method: 0 to 1, or None for
    unreadable}, own: {method: {answer, correct}}, decision}, and what else its question came with.
    `reply`: the whole text, where the answer was read out of it; `correct` only where there is a
    label, `own` for methods that judge another answer than the greedy one, `decision` after `keep`.
    """

    def __init__(self, records: list[Record], methods: list[str]):
        super().__init__(records)
        self.records = records
        self.methods = methods
        self.hints: list[str] = []  # what is said below the table
        self.decision = ""  # the last line, where a threshold was chosen
        self.by = methods[0]  # the method whose least confidences are shown first

    @property
    def has_labels(self) -> bool:
        return any("correct" in record for record in self)

    def confidence(self, method: str) -> list[float | None]:
        """The confidences of one method, in the order of the questions."""
        if method not in self.methods:
            raise BadInput(f"no method {method!r} in this table; it has {', '.join(self.methods)}")
        return [record["confidence"][method] for record in self]

    def correct(self, method: str) -> list[bool | None]:
        """Whether the answers that a method judges are right; None without a label. Raises BadInput
        where no answer has one.
        """
        if not self.has_labels:
            raise BadInput("no labels, so nothing says which answers are right; give labels=[...]")
        return [judged_answer(record, method).get("correct") for record in self]

    def metrics(self) -> dict[str, Record]:
        """{method: its metrics with 95 % intervals}, as in the workflow's metrics.json; of the
        questions with labels.
        """
        by_method = {}
        for method in self.methods:
            rows = []
            values = zip(self, self.correct(method), self.confidence(method), strict=True)
            for line, right, value in values:
                if right is not None:
                    rows.append(
                        judged_answer(line, method) | {"correct": right, "confidence": value}
                    )
            by_method[method] = given.metrics(rows)
        return by_method

    @typed
    def keep(
        self,
        risk: float | None = None,
        coverage: float | None = None,
        by: str | None = None,
        delta: float = 0.05,
        calibration: str | Path | None = None,
    ) -> str:
        """Decide which answers to keep and which to review, by a threshold on the confidences of
        the method `by` (the first).

        The threshold is chosen on the questions with labels, or on the labelled records of the file
        `calibration`. risk: at most this share of the kept answers is wrong, with probability 1 -
        delta (learn-then-test, orce.apps.calibrate). coverage: this share of the answers is kept;
        nothing is promised about errors. Each record gets `decision`, "keep" or "review". Returns
        the line that says how many are kept and what is promised, which the printed table ends
        with.
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
            decision = _for_risk(by, known, source, confidences, risk, delta)
        else:
            assert coverage is not None
            decision = _for_coverage(known, source, confidences, coverage)
        for record, is_kept in zip(self, decision.kept, strict=True):
            record["decision"] = "keep" if is_kept else "review"
        decided = [record for record in self if "correct" not in record]
        what = "questions without a label"
        if not decided or not known or calibration is not None:
            decided = self
            what = "questions"
        kept = sum(record["decision"] == "keep" for record in decided)
        least = ""
        if decision.threshold is not None:
            least = f" (`{by}` of at least {as_shown(decision.threshold)})"
        self.by = by
        self.decision = f"keep {kept} of {len(decided)} {what}{least}, review {len(decided) - kept}: {decision.promise}"
        return self.decision

    def _labelled(self, method: str) -> Labelled:
        if not self.has_labels:
            return []
        pairs = zip(self.confidence(method), self.correct(method), strict=True)
        return [(value, right) for value, right in pairs if right is not None]

    def to_pandas(self):
        """A DataFrame with a column for each method."""
        import pandas

        return pandas.DataFrame(map(_flat, self))

    @typed
    def write(self, path: str | Path) -> None:
        """Write the records: CSV for a name in .csv, else JSON lines. Raises BadInput for the name
        of another kind of table.
        """
        if writable(path) != "csv":
            return files.write_jsonl(path, self)
        rows = [_flat(record) for record in self]
        names: Record = {}
        for row in rows:
            names |= row
        columns = [name for name in RESERVED if name in names]
        columns += [name for name in names if name not in RESERVED]
        lines = [[row.get(column, "") for column in columns] for row in rows]
        with files.atomic(path) as handle:
            tables.write_csv(handle, [columns, *lines])

    def __repr__(self) -> str:
        """The least sure answers first: those are the ones to look at."""

        def confidence(record: Record) -> float:
            value = record["confidence"][self.by]
            return -1 if value is None else value  # unreadable ones before all others

        shown = sorted(self, key=confidence)[:SHOWN]
        columns = {"question": [], "answer": []}
        for record in shown:
            question = printable(record["question"])
            columns["question"].append(
                textwrap.shorten(question, QUESTION_WIDTH, placeholder="...")
            )
            columns["answer"].append(_end(printable(record["answer"] or "-"), ANSWER_WIDTH))
        if self.has_labels:
            columns["correct"] = [MARKS[record.get("correct")] for record in shown]
        for name in self.methods:
            columns[name] = [as_shown(record["confidence"][name]) for record in shown]
        if self.decision:
            columns["decision"] = [record["decision"] for record in shown]
        padded = []
        for name, cells in columns.items():
            side = "<" if name in ("question", "answer") else ">"
            width = max(map(len, [name, *cells]))
            padded.append([f"{cell:{side}{width}}" for cell in [name, *cells]])
        lines = ["  ".join(row) for row in zip(*padded, strict=True)]
        if len(self) > SHOWN:
            lines.append(
                f"... {len(self) - SHOWN} more, of the same or a higher confidence ({self.by})"
            )
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
    calibrate.check_share("delta", delta)
    if risk is not None:
        calibrate.check_share("risk", risk)
    elif coverage is not None and coverage != 1:
        calibrate.check_share("coverage", coverage)


def writable(path: str | Path) -> str:
    """The kind that a file's name says. Raises BadInput for a kind that would be read otherwise
    than it is written.
    """
    if Path(path).is_dir():
        raise BadInput(f"{path} is a folder; name a file in .jsonl or .csv")
    kind = tables.kind(Path(path))
    is_packed = Path(path).suffix.lower() in tables.PACKED[1:]
    if kind in UNWRITTEN or is_packed:
        raise BadInput(
            f"{path}: results are written as JSON lines or CSV; name a file in .jsonl or .csv"
        )
    return kind


def labelled_records(path: Path, method: str) -> Labelled:
    """The labelled records of a file that `Table.write` wrote, or of one with a `confidence` each."""
    pairs: Labelled = []
    for where, record in tables.records(path):
        correct = tables.judgement(record.get(f"{method}_correct"))  # a column of CSV
        if correct is None:
            correct = judged_answer(record, method).get("correct")
        if correct is None:
            continue
        if correct not in (True, False):
            raise BadInput(f"{where}: 'correct' is {correct!r}; expected true or false")
        confidence = record.get("confidence", record)  # CSV has a column for each method
        if isinstance(confidence, dict):
            if method not in confidence:
                has = ", ".join(map(str, confidence))
                raise BadInput(f"{where}: no confidence of {method!r}; it has {has}")
            confidence = confidence[method]
        confidence = tables.probability(where, tables.judgement(confidence))
        pairs.append((confidence, bool(correct)))
    if not pairs:
        raise BadInput(
            f"{path}: no record has 'correct', true or false; it has {', '.join(record)}"
        )
    return pairs


class Decision(NamedTuple):
    """kept: of each confidence, whether its answer is kept. threshold: None where none will do;
    promise: what is said of it.
    """

    kept: Sequence[bool]
    threshold: float | None
    promise: str


def _for_risk(
    by: str,
    known: Labelled,
    source: str,
    confidences: list[float | None],
    risk: float,
    delta: float,
) -> Decision:
    """By learn-then-test on the labelled confidences `known`. Raises BadInput where there are none."""
    if not known:
        raise BadInput(
            "a threshold for a risk is chosen on answers known to be right or wrong, and none is; "
            "give some questions a reference"
        )
    stated = [value for value, _ in known]
    correct = [right for _, right in known]
    if by in SMALL:
        stated = [*map(calibrate.spread, stated)]
        confidences = [*map(calibrate.spread, confidences)]
    selection = calibrate.threshold_for_risk(stated, correct, risk, delta)
    kept = [selection.keeps(value) for value in confidences]
    threshold = selection.threshold
    if threshold is None:
        return Decision(kept, None, f"no threshold ensures a risk of {risk:g}; {selection.needed}")
    promise = (
        f"the true error rate of those kept is at most {risk:.3g} with probability {1 - delta:g}, if they are of the same kind as "
        f"the {selection.n} {source}, of which it keeps {selection.kept} with {selection.errors} wrong"
    )
    if by in SMALL:
        threshold = calibrate.unspread(threshold)
    return Decision(kept, threshold, promise)


def _for_coverage(
    known: Labelled, source: str, confidences: list[float | None], coverage: float
) -> Decision:
    """By the share of the labelled confidences `known` that is kept, or of all `confidences` where
    none is labelled.
    """
    values = calibrate.floats(confidences)
    stated = calibrate.floats(value for value, _ in known) if known else values
    threshold = calibrate.threshold_for_coverage(stated, coverage)
    reached = stated >= threshold
    counts = ""
    if known:
        labels = [right for (_, right), is_kept in zip(known, reached, strict=True) if is_kept]
        counts = f", {labels.count(False)} of them wrong"
    promise = (
        f"{reached.sum()} of {len(stated)} {source if known else 'questions'} have that{counts}; "
        "nothing is promised about errors (a threshold for a risk does)"
    )
    return Decision((values >= threshold).tolist(), threshold, promise)


def judged_answer(record: Record, method: str) -> Record:
    """The mapping with the answer that a method judges and its `correct`: the method's own, or the
    record.
    """
    own = record.get("own")
    # any other column of this name is a user's
    return own.get(method, record) if isinstance(own, dict) else record


def as_shown(confidence: float | None) -> str:
    """Three decimals, or two significant digits of what these would not tell apart from 0."""
    if confidence is None:
        return "-"
    return f"{confidence:.3f}" if confidence >= 0.01 or confidence == 0 else f"{confidence:.1e}"


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
