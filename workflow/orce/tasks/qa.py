"""Free-form questions from any data set: the configuration's `fields` say where question and answer
stand.

fields: question; answer, a text, a number or a list of accepted ones (or several columns of them;
in a text column the list stands as JSON); and optional id, context. Where the answers are given and
judged already, answer may be left out, and question too (the id stands in its place). `equality`
decides when two answers are the same:
exact       the same text, but for spaces, quotes and a final full stop around it
normalised  TriviaQA's and SQuAD's rules: without case, width, punctuation, articles, repeated
            spaces and the signs between thousands
contains    as normalised, and an answer that holds a reference as whole words is right: "It is
            Lima." for Lima. It grades: samples are compared with each other as normalised
numeric     the same number: 1,200 and 1200.0
math-verify the same mathematical value, by the library of that name: 1/2, 0.5 and \\frac{1}{2}
"""

import logging
import re
import unicodedata
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from orce.artefacts.records import Example, Score
from orce.errors import BadInput
from orce.tasks import drop, rows
from orce.text import Read, render
from orce.text.extract import number, to_number
from orce.text.marks import ascii_signs, own_reply, plain, statements, unpunctuated

ANSWER_KIND = "short answer"
MAX_TOKENS = 48
METRIC = "accuracy"
# what is needed: orce.config.check
FIELDS = {"question": False, "answer": False, "id": False, "context": False}
OPTIONS = ("equality", "answer_after", "answer_pattern", "answer_marks", "ask")
DECIMALS = 12  # of a number that are compared: 2/3 is 0.6666666666666666 or 0.6666666666666667
SOLUTION = "####"  # before the answer of a worked solution, in GSM8K and similar sets


def load(
    source: Mapping[str, Any], split: str, seed: int = 0, first: int | None = None
) -> list[Example]:
    """Examples of a split, or of its first rows; `reference` is the list of accepted answers.
    `source` has fields, equality, ask and answer_after, the signs before an answer (GSM8K's
    solutions end with #### 72). Raises BadInput naming the row.
    """
    return rows.load_examples(source, split, first, lambda asked: _example(asked, source))


def _example(asked: rows.Question, source: Mapping[str, Any]) -> Example:
    equality = source.get("equality", "normalised")
    named = source["fields"].get("answer", [])
    answers: list[str] = asked.reference
    example = asked.example("qa", equality=equality) | {"reference": answers}
    if not named:  # given answers are judged already
        return example
    where = f"{asked.where}: {', '.join(named) if isinstance(named, list) else named}"
    if not answers:
        raise BadInput(f"{where} is empty; give the accepted answer, or leave the row out")
    if SOLUTION in answers[0] and len(answers[0]) > len(SOLUTION):
        raise BadInput(
            f"{where} holds a solution with its answer after {SOLUTION}; so say: answer_after: {SOLUTION!r}"
        )
    comparable(where, answers, equality)
    return example


def comparable(where: str, answers: list[str], equality: str) -> None:
    """Raises BadInput for accepted answers with which no answer could be compared."""
    if not any(_form(answer, equality) for answer in answers):
        what = {"numeric": "a number", "math-verify": "a mathematical expression"}.get(
            equality, "a text"
        )
        raise BadInput(
            f"{where} holds {answers}; expected {what} to compare with ({equality} equality)"
        )


def question(example: Example) -> str:
    context = f"Passage: {example['context']}\n\nQuestion: " if example["context"] else ""
    return context + example["question"]


def prompt(example: Example, shots: int | None = None) -> list[dict]:
    """A user turn that asks for the answer alone, after the example's worked ones, or the first
    `shots` of them.
    """
    kinds = {"numeric": "the number", "math-verify": "the final result"}
    kind = kinds.get(example.get("equality", ""), "the answer")
    worked = example.get("worked", [])
    if shots is not None and not 0 <= shots <= len(worked):
        raise BadInput(
            f"shots is {shots!r}; expected a number from 0 to {len(worked)}, the worked examples there are"
        )
    turns: list[dict] = []
    shown = [pair for pair in worked[:shots] if pair is not None]
    for text, reply in [*shown, (question(example), "")]:
        turns.append(
            {"role": "user", "content": text if turns else render("qa", question=text, kind=kind)}
        )
        turns.append({"role": "assistant", "content": reply})
    return turns[:-1]


def extract(text: str, example: Example) -> str | None:
    """The answer that a text states, or None; for numeric equality the number, in canonical form."""
    matched = rows.matched_text(text, example)
    if example.get("equality") == "numeric":
        answer = number(matched, conclusion=True)
    elif example.get("equality") == "math-verify":
        answer = _expression(matched)
    else:
        answer = drop.extract(matched, example)
    return rows.named_by(answer, text, matched, example)


def score(answer: str | None, example: Example) -> Score:
    if answer is None:
        return {"correct": False, "f1": None}
    if not example["reference"]:
        raise BadInput(
            "the dataset has no references to compare answers with; name their column (fields.answer)"
        )
    equality = example.get("equality")
    if equality == "math-verify":
        return {
            "correct": any(_same_value(gold, answer) for gold in example["reference"]),
            "f1": None,
        }
    form = _form(answer, equality)
    golds = {_form(gold, equality) for gold in example["reference"]}
    return {
        "correct": form in golds or (equality == "contains" and holds(answer, example) is not None),
        "f1": None,
    }


def holds(answer: str, example: Example) -> str | None:
    """The first accepted answer that an answer has in it as whole words, in normalised form."""
    words = f" {normalise(answer, initials=False)} "  # in a sentence, "us" is not the U.S.
    golds = [normalise(gold, initials=False) for gold in example["reference"]]
    return next((gold for gold in golds if gold and f" {gold} " in words), None)


def key(answer: str, example: Example) -> str:
    """Equal for answers that are the same to the equality: with math-verify, for the same
    simplified expression; with contains, for the same normalised text, since two answers are
    compared without a reference that both could contain.
    """
    return _form(answer, example.get("equality")) or answer.strip()


display = drop.display


def _form(answer: str, equality: str | None) -> str | None:
    """The form in which answers are compared; None for a text without one. Without an equality, as
    for a question that a user types: normalised.
    """
    if equality == "numeric":
        # A reference may be 1/2 or 50 %, as an answer may.
        read = to_number(answer.strip().rstrip(".")) or number(answer)
        return read if read is None else to_number(f"{Decimal(read):.{DECIMALS}f}")
    if equality == "math-verify":
        return _simplified(answer)
    text = drop.trim(plain(answer)) or answer.strip()
    return text if equality == "exact" else normalise(text) or text.lower()


# A sign that tells two answers apart: of -5, C++, A+, C#, < 5 and x = 1; not of 10-5, #1 and a
# quoted "> Paris".
_TELLING = r"(?<![\w)])-(?=\.?\d)|(?<=[\w+])\+(?!\w)|(?<=[^\W\d_])#(?!\w)|(?<=\w)\s*[<=>]\s*(?=[\w-])|[<>](?=\s*-?\.?\d)"


# A number whose digits are in groups of three: 1,000, 1'000 or 1 000.
_THOUSANDS = re.compile(
    r"(?<![\w.,'])(?<!\d )[1-9]\d{0,2}(?:(?:,\d{3})+|(?:'\d{3})+|(?: \d{3})+)(?![\d'])(?!,\d| \d)"
)


def _folded(text: str) -> str:
    """Casefold of a text in NFKC; a power and a fraction stay apart from the digits before them: 10² is not 102, 2½ not 21/2."""
    if text.isascii():
        return text.lower()
    apart = re.sub(r"(?<=\d)(?=[⁰¹²³⁴-⁹¼-¾⅐-⅞])", " ", text)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", apart).casefold())
    # the dot over İ, which casefold leaves over i, and the stroke of ½
    return folded.replace("i\u0307", "i").replace("\u2044", "/")


def normalise(answer: str, initials: bool = True) -> str:
    """Without case, punctuation of any script, articles and repeated spaces; signs that tell
    answers apart stay.

    Case is Unicode's casefold of the compatibility forms (NFKC): "STRASSE" is "Straße", "H₂O" is
    "H2O". As in SQuAD's rule the signs between thousands go ("1,000" is "1000"), and as in
    TriviaQA's all other punctuation is a space. initials: letters that stand alone are one word,
    as U.S.A. and J. K. Rowling are USA and JK Rowling.
    """
    text = _THOUSANDS.sub(lambda number: re.sub(r"\D", "", number[0]), _folded(ascii_signs(answer)))
    bare = unpunctuated(text, " ", kept=_TELLING)
    bare = " ".join(re.sub("([<=>])", r" \1 ", bare).split())
    if initials:
        bare = re.sub(r"(?<!\w)([^\W\d_]) (?=[^\W\d_](?!\w))", r"\1", bare)
    return " ".join(re.sub(r"(?<!\w)(a|an|the)(?![\w+#])", " ", bare).split())


# math-verify

LONGEST_NAME = 4  # words of an answer that is a name: \text{Evelyn}, "(B) and (C)"
NO_LIMIT: Any = None  # a time limit would need the main thread's signals
LONGEST_EXPRESSION = 4000  # characters of a line or a marked answer that is parsed
_DELIMITED = re.compile(r"\\\((?P<round>(?:(?!\\[()]).)+)\\\)|\$(?P<dollar>[^$]+)\$", re.DOTALL)


def require(equality: str) -> None:
    """Raises BadInput if the equality needs a library that is not installed."""
    if equality == "math-verify":
        # it warns of every call without a time limit
        logging.getLogger("math_verify").setLevel(logging.ERROR)
        try:
            import math_verify  # noqa: F401
        except ImportError:
            raise BadInput(
                "equality math-verify needs its library: pip install 'math-verify[antlr4_13_2]'"
            ) from None


@own_reply
def _expression(text: str) -> str | None:
    """The last marked answer that is an expression, else the expression of the last line that has
    one.
    """
    *stated, whole = statements(plain(text))
    last = [] if getattr(text, "cut", False) else whole.splitlines()[::-1]
    last = [Read.of(line, whole.by) for line in last]
    for statement in (
        statement for statement in [*stated, *last] if len(statement) <= LONGEST_EXPRESSION
    ):
        # "9. I am sure of it." answers with 9.
        answer = re.split(r"(?<=[\w)}\]$%])\.(?:\s+(?=[A-Z])|$)", statement.strip())[0].strip()
        # Of a sentence with several formulas, the one that ends it counts: 'The range of \(f(x)\)
        # is \((0, 1]\)'.
        formulas = list(_DELIMITED.finditer(answer))
        if len(formulas) > 1 and formulas[-1].end() == len(answer):
            answer = _bare(formulas[-1][0]).strip()
        if answer and _parsed(answer):
            return Read.of(answer, statement.by, "expression")
        if answer and statement in stated and len(answer.split()) <= LONGEST_NAME:
            return Read.of(answer, statement.by, "name")
    return None


def _bare(answer: str) -> str:
    """A formula without its delimiters: '\\(14,400\\)' is a number and not a pair of numbers."""
    alone = _DELIMITED.fullmatch(answer.strip())
    return alone["round"] or alone["dollar"] if alone else answer


@lru_cache(maxsize=4096)
def _parsed(answer: str) -> list:
    require("math-verify")
    from math_verify import parse

    return parse(_latex(_bare(ascii_signs(answer)).replace("\\$", "")), parsing_timeout=NO_LIMIT)


def _latex(bare: str) -> str:
    """An expression as LaTeX between dollar signs, so that it is parsed as one; prose with formulas
    stays as it is.
    """
    bare = bare.replace("$", "") if bare.count("$") == 1 else bare  # of currency
    bare = re.sub(
        r"(?<![\\a-z])sqrt ?\(([^()]*)\)", r"\\sqrt{\1}", re.sub(r"(?<![\\a-z])pi\b", r"\\pi", bare)
    )
    words = re.search(r"[^\W\d_]{2}", re.sub(r"\\[a-z]+", "", bare))
    listed = re.search(r",", re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", bare))
    formula = re.search(r"[\\^_]", bare) or (not words and (listed or re.search(r"[^\W\d_]", bare)))
    return f"${bare}$" if "$" not in bare and formula else bare


def _same_value(gold: str, answer: str) -> bool:
    def written(text: str) -> str:
        return "".join(_bare(plain(text)).replace("\\$", "").split()).rstrip(".")

    # an interval or a time of day is not always equal to itself there
    if written(gold) == written(answer):
        return True
    values = _parsed(gold), _parsed(answer)
    from math_verify import verify

    same = verify(*values, timeout_seconds=NO_LIMIT)
    return bool(same) or (
        not re.search(r"\d", gold) and normalise(plain(gold)) == normalise(answer)
    )


@lru_cache(maxsize=4096)
def _simplified(answer: str) -> str | None:
    if not (values := _parsed(answer)):
        return None
    import sympy

    try:
        return str(sympy.nsimplify(sympy.simplify(values[0]), rational=True))
    except (AttributeError, TypeError, ValueError, sympy.SympifyError):
        return str(values[0])
