"""Public answers and questions in the form of the given-answers door: ``python -m evidence.decisive data --from FOLDER``.

FOLDER has clones of the public repositories, each under its own name (docs/evidence/items.md).
"""

import csv
import hashlib
import io
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from orce.errors import BadInput

REPOSITORIES = {  # folder: (address, revision); their licences: docs/evidence/items.md
    "llm-foundry": ("github.com/mosaicml/llm-foundry", "8c8dd48f72168c5d51e2f7b151595892a8fba43d"),
    "jhu-llm-temperature": ("github.com/matthewrenze/jhu-llm-temperature", "b00cfb652897e8bdc28c63234def9b490fa84cfb"),
    "cruxeval": ("github.com/facebookresearch/cruxeval", "190faf16d175b5847b0af05d937872b1fb395942"),
}
WIKIDATA = "llm-foundry/scripts/eval/local_data/world_knowledge/bigbench_qa_wikidata.jsonl"
FUNCTIONS = "cruxeval/data/cruxeval.jsonl"
PREDICTIONS = "cruxeval/samples/evaluation_results/sample_scored_codellama-7b_temp0.2_output.json"
DETAILS = "jhu-llm-temperature/data/details/gpt-35-turbo - chain_of_thought - {exam}-100 - temp-{temperature}.csv"
# Not "lsat-rc" and "sat-en": 570 and 720 words a question.
EXAMS = (
    "aqua-rat",
    "arc-challenge-test",
    "hellaswag_val",
    "logiqa-en",
    "lsat-ar",
    "lsat-lr",
    "medmcqa-dev",
    "sat-math",
)
DIGESTS = {  # SHA-256 of a file, or of the files of all exams, one after the other
    WIKIDATA: "bb0d22727cb25beffb022c8e8c0c3e1159c8b3c7bd7284603c0d6491f8616265",
    FUNCTIONS: "8368b81047dc5014e4caf5a2f97604eff7644e0ecd7415e3ceeb184bbc2e0c96",
    PREDICTIONS: "2b3095f6e8642c32e8a074abb626c13374a64a4dce4e2b4ab6a9ec72c46d6ae2",
    DETAILS: "673f0b01f3480575426fe069e699b610193459a9b9ff496676c7b76abd2c1bf7",
}
SPLITS = ("train", "validation", "test")
RELATION = re.compile(
    r"^(The (?:country of citizenship|country of origin|original language of \w+|place of \w+"
    r"|language used|office held by head|official color|[^ ]+(?: [^ ]+){0,3}?)) (?:of|in) (.+?) is(?: in)?$"
)
SHIFTED = re.compile(r"language|religion|capital|currency|continent|ethnic|citizenship")  # the relations trained on


def read(folder: Path, name: str, **places: Sequence[str]) -> list[str]:
    """The texts of a source: one, or one for each combination of `places`.

    Raises BadInput where a file is not there, or they are not the ones that were used.
    """
    repository, (address, revision) = name.partition("/")[0], REPOSITORIES[name.partition("/")[0]]
    paths = [folder / name.format(**dict(zip(places, at, strict=True))) for at in itertools.product(*places.values())]
    for path in paths:
        if not path.exists():
            raise BadInput(f"{path}: not there; clone {address} to {folder / repository}, and check {revision} out")
    contents = [path.read_bytes() for path in paths]
    if hashlib.sha256(b"".join(contents)).hexdigest() != DIGESTS[name]:
        raise BadInput(f"{paths[0]}: its SHA-256 is another; check {revision} of {address} out")
    return [content.decode("utf-8-sig") for content in contents]


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def relation(context: str) -> tuple[str, str]:
    """(relation, subject) of a question of qa_wikidata; a question of another form is its own relation."""
    match = RELATION.match(context)
    return (match[1], match[2]) if match else ("other", context)


def wikidata(folder: Path) -> Iterator[dict]:
    """Questions split by a hash of their subject: the same subject is on one side alone."""
    seen = set()
    for row in lines(*read(folder, WIKIDATA)):
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
    tables = [
        [*csv.DictReader(io.StringIO(text))] for text in read(folder, DETAILS, exam=EXAMS, temperature=("0.0", "1.0"))
    ]
    for exam, cold, warm in zip(EXAMS, tables[::2], tables[1::2], strict=True):
        for first, row in zip(cold, warm, strict=True):
            gold, question = row["Correct Answer"], row["Problem"].strip()
            drawn, greedy = [row[f"Answer {number}"] for number in range(1, 11)], first["Agent Answer"]
            made = {"id": f"{exam}-{row['Problem ID']}", "question": question, "references": [gold], "group": exam}
            made |= {"answers": [*map(shown, drawn)], "correct": [answer == gold for answer in drawn]}
            yield made | {"greedy": {"answer": shown(greedy), "correct": greedy == gold}, "split": share(question)}


def shown(letter: str) -> str | None:
    """What a judge reads: the letter, "N" as the authors read it, None for an answer that gave none."""
    return {"": None, "N": "none of these"}.get(letter, letter)


def cruxeval(folder: Path) -> Iterator[dict]:
    """CodeLlama-7B's predictions of a function's output, split by function."""
    given = json.loads(*read(folder, PREDICTIONS))
    for row in lines(*read(folder, FUNCTIONS)):
        answers, correct = (given[key][row["id"]] for key in ("raw_generations", "raw_scored_generations"))
        text = f"{row['code']}\n\nWhat does f({row['input']}) return?"
        first = {"answer": answers[0], "correct": correct[0]}  # no greedy answer was published
        made = {"id": row["id"], "question": text, "references": [row["output"]], "group": "output", "greedy": first}
        yield made | {"answers": answers, "correct": correct, "split": share(row["code"])}


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
