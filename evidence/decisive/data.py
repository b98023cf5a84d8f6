"""Public answers and questions in the form of the given-answers door: ``python -m evidence.decisive data --from FOLDER``.

FOLDER has extracts of public repositories, one folder a source (docs/evidence/items.md):
qa_wikidata/questions.jsonl, gpt35-exams/answers.jsonl, cruxeval/{questions,codellama-7b-output}.jsonl.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from orce.artefacts import files
from orce.errors import BadInput

SOURCES = {  # file: (public repository, SHA-256)
    "qa_wikidata/questions.jsonl": (
        "github.com/mosaicml/llm-foundry (Apache-2.0)",
        "bb0d22727cb25beffb022c8e8c0c3e1159c8b3c7bd7284603c0d6491f8616265",
    ),
    "gpt35-exams/answers.jsonl": (
        "github.com/matthewrenze/jhu-llm-temperature (BSD-2)",
        "494821b6a2b92899c7c653acffb234e26ee4ecaed745e273546dc4d7608b75fd",
    ),
    "cruxeval/questions.jsonl": (
        "github.com/facebookresearch/cruxeval (MIT)",
        "8368b81047dc5014e4caf5a2f97604eff7644e0ecd7415e3ceeb184bbc2e0c96",
    ),
    "cruxeval/codellama-7b-output.jsonl": (
        "github.com/facebookresearch/cruxeval (MIT)",
        "8026d113de28e7458cf2c963a10e2239a1f8a71eb6fdfd4bf17422c05358931d",
    ),
}
SPLITS = ("train", "validation", "test")
LONG_EXAMS = ("lsat-rc", "sat-en")  # 570 and 720 words a question: left out for their cost
RELATION = re.compile(
    r"^(The (?:country of citizenship|country of origin|original language of \w+|place of \w+"
    r"|language used|office held by head|official color|[^ ]+(?: [^ ]+){0,3}?)) (?:of|in) (.+?) is(?: in)?$"
)
SHIFTED = re.compile(r"language|religion|capital|currency|continent|ethnic|citizenship")  # the relations trained on


def read(folder: Path, name: str) -> list[dict]:
    """The rows of a source. Raises BadInput where it is not there, or is not the file that was used."""
    path, (origin, digest) = folder / name, SOURCES[name]
    if not path.exists():
        raise BadInput(f"{path}: not there; {name} is made from {origin}, see docs/evidence/items.md")
    if files.file_digest(path) != digest:
        raise BadInput(f"{path}: its SHA-256 is not {digest}; another extract of {origin} gives other cells")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def relation(context: str) -> tuple[str, str]:
    """(relation, subject) of a question of qa_wikidata; a question of another form is its own relation."""
    match = RELATION.match(context)
    return (match[1], match[2]) if match else ("other", context)


def wikidata(folder: Path) -> Iterator[dict]:
    """Questions split by a hash of their subject: the same subject is on one side alone."""
    seen = set()
    for row in read(folder, "qa_wikidata/questions.jsonl"):
        kind, subject = relation(row["context"])
        if row["context"] in seen:
            continue
        seen.add(row["context"])
        yield {"question": row["context"], "references": [row["continuation"]], "group": kind, "split": share(subject)}


def wikidata_shift(folder: Path) -> Iterator[dict]:
    """The same, trained and validated on some relations and tested on all others.

    A test question of no known form ("Prague is capital of") may still ask for a relation trained on: its words tell.
    """
    for row in wikidata(folder):
        if row["split"] == "test":
            if not SHIFTED.search(row["question"]):
                yield row
        elif SHIFTED.search(row["group"]):
            yield row


def exams(folder: Path) -> Iterator[dict]:
    """GPT-3.5's answers at T = 1 (samples) and T = 0 (greedy), of the eight exams with short questions."""
    for row in read(folder, "gpt35-exams/answers.jsonl"):
        if row["exam"] in LONG_EXAMS:
            continue
        name = f"{row['exam']}-{row['id']}"
        made = {"id": name, "question": row["problem"].strip(), "references": [row["gold"]], "group": row["exam"]}
        right = [answer == row["gold"] for answer in row["answers_t1.0"]]
        greedy = {"answer": shown(row["greedy"]), "correct": row["greedy"] == row["gold"]}
        answers = [shown(answer) for answer in row["answers_t1.0"]]
        yield made | {"answers": answers, "correct": right, "greedy": greedy, "split": share(made["question"])}


def shown(letter: str) -> str | None:
    """What a judge reads: the letter, "N" as the authors read it, None for an answer that gave none."""
    return {"": None, "N": "none of these"}.get(letter, letter)


def cruxeval(folder: Path) -> Iterator[dict]:
    """CodeLlama-7B's predictions of a function's output, split by function."""
    given = {row["id"]: row for row in read(folder, "cruxeval/codellama-7b-output.jsonl")}
    for row in read(folder, "cruxeval/questions.jsonl"):
        of = given[row["id"]]
        text = f"{row['code']}\n\nWhat does f({row['input']}) return?"
        first = {"answer": of["answers"][0], "correct": of["correct"][0]}  # no greedy answer was published
        made = {"id": row["id"], "question": text, "references": [row["output"]], "group": "output", "greedy": first}
        yield made | {"answers": of["answers"], "correct": of["correct"], "split": share(row["code"])}


CELLS: dict[str, Callable[[Path], Iterator[dict]]] = {
    "wikidata": wikidata, "wikidata-shift": wikidata_shift, "exams": exams, "cruxeval": cruxeval,
}  # fmt: skip


def share(text: str) -> str:
    """The split of a text: half train, a tenth validation, four tenths test."""
    place = int(hashlib.sha256(text.encode()).hexdigest(), 16) % 10
    return "test" if place < 4 else "validation" if place == 4 else "train"


def make(cell: str, folder: Path, out: Path) -> None:
    """Write OUT/{train,validation,test}.jsonl in an order of hashes, and answers.jsonl where answers are given."""
    rows = [
        row | {"id": row.get("id") or hashlib.sha256(row["question"].encode()).hexdigest()[:12]}
        for row in CELLS[cell](folder)
    ]
    rows.sort(key=lambda row: hashlib.sha256(row["id"].encode()).hexdigest())
    out.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        keys = ("id", "question", "references", "group")
        _write(out / f"{split}.jsonl", [{key: row[key] for key in keys} for row in rows if row["split"] == split])
    if "answers" in rows[0]:
        _write(
            out / "answers.jsonl", [{key: row[key] for key in ("id", "answers", "correct", "greedy")} for row in rows]
        )


def _write(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
