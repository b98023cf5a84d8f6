"""Free-form questions from any data set: the configuration's `fields` say where question and answer
stand.

fields: question; answer, a text, a number or a list of accepted ones (or several columns of them;
in a text column the list is JSON); and the optional id and context. Where answers are given with
their judgements, answer may be left out, and question too (the id takes its place). `equality`
decides when two answers are the same:
exact       the same text, but for spaces, quotes and a final full stop around it
normalised  TriviaQA's and SQuAD's rules: without case, width, punctuation, articles, repeated
            spaces and the signs between thousands
contains    as normalised, and an answer that has a reference in it as whole words is right too: "It
            is Lima." for Lima. Samples are compared with each other as normalised
numeric     the same number: 1,200 and 1200.0
math-verify the same mathematical value, by the library of that name: 1/2, 0.5 and \\frac{1}{2}
"""

import logging
import re
import unicodedata
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any

from orce.artefacts.records import Example, Score
from orce.errors import BadInput
from orce.tasks import drop, rows, sources
from orce.text import Read, render
from orce.text.extract import number, to_number
from orce.text.marks import ascii_signs, own_reply, plain, statements, unpunctuated

ANSWER_KIND = "short answer"
MAX_TOKENS = 48
METRIC = "accuracy"
# Keys of the configuration's `fields`; orce.config.check says when question and answer are required.
FIELDS = {"question": False, "answer": False, "id": False, "context": False}
OPTIONS = ("equality", "answer_after", "answer_pattern", "answer_marks", "ask")
# Decimals that are compared, as 2/3 is 0.6666666666666666 or 0.6666666666666667; of a number below 1
# those after its zeros.
DECIMALS = 12
SOLUTION = "####"  # before the answer of a worked solution, in GSM8K and similar sets


def load(
    source: sources.DataSource, split: str, seed: int = 0, first: int | None = None
) -> list[Example]:
    """Examples of a split, or of its first rows; `reference` is the list of accepted answers.
    `source` has fields, equality, ask and answer_after, the signs before an answer (GSM8K's
    solutions end with #### 72). Raises BadInput naming the row.
    """
    return rows.load_examples(source, split, first, lambda asked: _example(asked, source))


def _example(asked: rows.Question, source: sources.DataSource) -> Example:
    equality = source.get("equality", "normalised")
    named = source["fields"].get("answer", [])
    answers: list[str] = asked.reference
    example = asked.example("qa", equality=equality) | {"reference": answers}
    if not named:  # the answers are given, with their judgements
        return example
    where = f"{asked.where}: {', '.join(named) if isinstance(named, list) else named}"
    if not answers:
        raise BadInput(f"{where} is empty; give the accepted answer, or leave the row out")
    if SOLUTION in answers[0] and answers[0] != SOLUTION:
        remedy = f"so say: answer_after: {SOLUTION!r}"
        raise BadInput(f"{where} holds a solution with its answer after {SOLUTION}; {remedy}")
    comparable(where, answers, equality)
    return example


def comparable(where: str, answers: list[str], equality: str) -> None:
    """Raises BadInput for accepted answers with which no answer could be compared."""
    if any(_comparable_form(answer, equality) for answer in answers):
        return
    kinds = {"numeric": "a number", "math-verify": "a mathematical expression"}
    expected = f"{kinds.get(equality, 'a text')} to compare with ({equality} equality)"
    raise BadInput(f"{where} holds {answers}; expected {expected}")


def question(example: Example) -> str:
    return drop.question(example) if example["context"] else example["question"]


def prompt(example: Example, shots: int | None = None) -> list[dict]:
    """A user turn that asks for the answer alone, after those of the example's worked examples, or
    of the first `shots` of them. The first turn has the instruction.
    """
    worked = example.get("worked", [])
    if shots is not None and not 0 <= shots <= len(worked):
        expected = f"expected a number from 0 to {len(worked)}, the worked examples there are"
        raise BadInput(f"shots is {shots!r}; {expected}")
    turns = []
    for pair in worked[:shots]:
        if pair is not None:
            turns.append({"role": "user", "content": pair[0]})
            turns.append({"role": "assistant", "content": pair[1]})
    turns.append({"role": "user", "content": question(example)})
    kinds = {"numeric": "the number", "math-verify": "the final result"}
    kind = kinds.get(example.get("equality", ""), "the answer")
    turns[0]["content"] = render("qa", question=turns[0]["content"], kind=kind)
    return turns


def extract(text: str, example: Example) -> str | None:
    """The answer that a text states, or None; for numeric equality the number, in canonical form."""
    if example.get("equality") == "numeric":
        read = partial(number, conclusion=True)
    elif example.get("equality") == "math-verify":
        read = _read_expression
    else:
        read = partial(drop.extract, example=example)
    return rows.read_by_own_form(text, example, read)


def score(answer: str | None, example: Example) -> Score:
    if answer is None:
        return {"correct": False, "f1": None}
    references = example["reference"]
    if not references:
        lacking = "the dataset has no references to compare answers with"
        raise BadInput(f"{lacking}; name their column (fields.answer)")
    equality = example.get("equality")
    if equality == "math-verify":
        correct = any(_same_value(gold, answer) for gold in references)
    else:
        correct = _comparable_form(answer, equality) in {
            _comparable_form(gold, equality) for gold in references
        }
        if equality == "contains" and not correct:
            correct = holds(answer, example) is not None
    return {"correct": correct, "f1": None}


def holds(answer: str, example: Example) -> str | None:
    """The first accepted answer that an answer has in it as whole words, in normalised form."""
    words = f" {normalise(answer, initials=False)} "  # in a sentence, "us" is not the U.S.
    golds = [normalise(gold, initials=False) for gold in example["reference"]]
    return next((gold for gold in golds if gold and f" {gold} " in words), None)


def key(answer: str, example: Example) -> str:
    """Equal for answers that the equality calls the same: with math-verify, for the same simplified
    expression; with contains, for the same normalised text, since there is no reference here that
    both could contain.
    """
    return _comparable_form(answer, example.get("equality")) or answer.strip()


display = drop.display


def _comparable_form(answer: str, equality: str | None) -> str | None:
    """The form in which answers are compared; None for a text without one. Without an equality, as
    for a question that a user types: normalised.
    """
    if equality == "numeric":
        # A reference may be 1/2 or 50 %, as an answer may.
        read = to_number(answer.strip().rstrip(".")) or number(answer)
        if read is None:
            return None
        value = Decimal(read)
        decimals = DECIMALS - min(0, value.adjusted() + 1)
        return f"{value:.{decimals}f}".rstrip("0").rstrip(".")
    if equality == "math-verify":
        return _simplify(answer)
    text = drop.trim(plain(answer)) or answer.strip()
    return text if equality == "exact" else normalise(text) or text.lower()


# A sign that tells two answers apart: in -5, C++, A+, C#, < 5 and x = 1; not in 10-5, #1 and a
# quoted "> Paris".
_TELLING = r"(?<![\w)])-(?=\.?\d)|(?<=[\w+])\+(?!\w)|(?<=[^\W\d_])#(?!\w)|(?<=\w)\s*[<=>]\s*(?=[\w-])|[<>](?=\s*-?\.?\d)"

# A number whose digits are in groups of three: 1,000, 1'000 or 1 000.
_THOUSANDS = re.compile(
    r"(?<![\w.,'])(?<!\d )[1-9]\d{0,2}(?:(?:,\d{3})+|(?:'\d{3})+|(?: \d{3})+)(?![\d'])(?!,\d| \d)"
)


def _fold(text: str) -> str:
    """The casefold of a text in NFKC. A power and a fraction stay apart from the digits before them:
    10² is not 102, and 2½ not 21/2.
    """
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
    text = _fold(ascii_signs(answer))
    text = _THOUSANDS.sub(lambda number: re.sub(r"\D", "", number[0]), text)
    text = unpunctuated(text, " ", kept=_TELLING)
    text = " ".join(re.sub("([<=>])", r" \1 ", text).split())
    if initials:
        text = re.sub(r"(?<!\w)([^\W\d_]) (?=[^\W\d_](?!\w))", r"\1", text)
    return " ".join(re.sub(r"(?<!\w)(a|an|the)(?![\w+#])", " ", text).split())


# math-verify

LONGEST_NAME = 4  # words of a marked answer that is no expression: \text{Evelyn}, "(B) and (C)"
NO_LIMIT: Any = None  # math-verify's time limits need signals, which the main thread alone gets
LONGEST_EXPRESSION = 4000  # characters of a line or a marked answer that is parsed
_DELIMITED = re.compile(r"\\\((?P<round>(?:(?!\\[()]).)+)\\\)|\$(?P<dollar>[^$]+)\$", re.DOTALL)


def require(equality: str) -> None:
    """Raises BadInput if the equality needs a library that is not installed."""
    if equality == "math-verify":
        # It warns of each call without a time limit.
        logging.getLogger("math_verify").setLevel(logging.ERROR)
        try:
            import math_verify  # noqa: F401
        except ImportError:
            raise BadInput(
                "equality math-verify needs its library: pip install 'math-verify[antlr4_13_2]'"
            ) from None


@own_reply
def _read_expression(text: str) -> str | None:
    """The last marked answer that is an expression or a name, else the expression of the last line
    that has one.
    """
    *stated, whole = statements(plain(text))
    unmarked = [] if getattr(text, "cut", False) else whole.splitlines()[::-1]
    for statement in [*stated, *(Read.of(line, whole.by) for line in unmarked)]:
        if len(statement) > LONGEST_EXPRESSION:
            continue
        # "9. I am sure of it." answers with 9.
        answer = re.split(r"(?<=[\w)}\]$%])\.(?:\s+(?=[A-Z])|$)", statement.strip())[0].strip()
        # Of a sentence with several formulas, the one that ends it counts: 'The range of \(f(x)\)
        # is \((0, 1]\)'.
        formulas = [*_DELIMITED.finditer(answer)]
        if len(formulas) > 1 and formulas[-1].end() == len(answer):
            answer = _without_delimiters(formulas[-1][0]).strip()
        if answer and _parse(answer):
            return Read.of(answer, statement.by, "expression")
        if answer and statement in stated and len(answer.split()) <= LONGEST_NAME:
            return Read.of(answer, statement.by, "name")
    return None


def _without_delimiters(answer: str) -> str:
    """A formula without its delimiters: '\\(14,400\\)' is a number and not a pair of numbers."""
    alone = _DELIMITED.fullmatch(answer.strip())
    return alone["round"] or alone["dollar"] if alone else answer


@lru_cache(maxsize=4096)
def _parse(answer: str) -> list:
    require("math-verify")
    from math_verify import parse

    return parse(
        _latex(_without_delimiters(ascii_signs(answer)).replace("\\$", "")),
        parsing_timeout=NO_LIMIT,
    )


def _latex(bare: str) -> str:
    """An expression as LaTeX between dollar signs, so that it is parsed as one; prose with formulas
    stays as it is.
    """
    if bare.count("$") == 1:  # of currency
        bare = bare.replace("$", "")
    bare = re.sub(r"(?<![\\a-z])pi\b", r"\\pi", bare)
    bare = re.sub(r"(?<![\\a-z])sqrt ?\(([^()]*)\)", r"\\sqrt{\1}", bare)
    if "$" in bare:
        return bare
    has_words = re.search(r"[^\W\d_]{2}", re.sub(r"\\[a-z]+", "", bare))
    is_list = "," in re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", bare)
    is_short = not has_words and (is_list or re.search(r"[^\W\d_]", bare))
    return f"${bare}$" if is_short or re.search(r"[\\^_]", bare) else bare


def _same_value(gold: str, answer: str) -> bool:
    def without_layout(text: str) -> str:
        return "".join(_without_delimiters(plain(text)).replace("\\$", "").split()).rstrip(".")

    # To math-verify an interval or a time of day is not always equal to itself.
    if without_layout(gold) == without_layout(answer):
        return True
    values = (_parse(gold), _parse(answer))
    from math_verify import verify

    if verify(*values, timeout_seconds=NO_LIMIT):
        return True
    return _is_name(gold) and _is_name(answer) and normalise(plain(gold)) == normalise(answer)


def _is_name(answer: str) -> bool:
    """Whether an answer is words alone, such as \\text{Evelyn} or (C); p - q and (a, b) are not."""
    return not re.search(r"[\d\-+*/^=<>\\\[\]{}|]|\(.*,", plain(answer))


@lru_cache(maxsize=4096)
def _simplify(answer: str) -> str | None:
    values = _parse(answer)
    if not values:
        return None
    import sympy

    try:
        return str(sympy.nsimplify(sympy.simplify(values[0]), rational=True))
    except (AttributeError, TypeError, ValueError, sympy.SympifyError):
        return str(values[0])
