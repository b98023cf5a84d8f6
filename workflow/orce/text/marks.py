"""The text of a reply as it looks, without thoughts, tokens and markup, and where it says that its answer follows: tables of
the forms that models, benchmarks and answer formats use.

A mark belongs to the text that it opens, which ends at the next mark, at a stated confidence or at the next question. The
last mark with a readable answer counts, as in the graders of GSM8K and MATH. tests/test_marks.py reads each row's example.
"""

import functools
import re
import string
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from orce.text import Read, Rule, compiled, either, rules, table

# The text as it looks

_PAIRS = {"‘’‚‛′´‹›": "'", "“”„‟″«»「」『』": '"', "‐‑‒−﹣": "-", "。।۔٫": ".", "、،٬": ",", "؛": ";", "؟": "?", "٪": "%"}  # fmt: skip
_INVISIBLE = [0xAD, 0x34F, 0x61C, 0x180E, 0xFEFF, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), *range(0xFE00, 0xFE10)]  # fmt: skip
# full-width ones
_SIGNS = {0xFF01 + i: chr(0x21 + i) for i in range(94)} | dict.fromkeys(_INVISIBLE, "")
_SIGNS |= dict.fromkeys([0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000], " ")
_SIGNS |= {ord(sign): plain for signs, plain in _PAIRS.items() for sign in signs}
# to sort more of them would take minutes
_STACKED = r"([\u0300-\u036f]{8})[\u0300-\u036f]+"
# ligatures and Arabic forms, which look as their letters do
_FORMS = r"[\ufb00-\ufdff\ufe70-\ufefc]+"
# another one begins a clause: "The answer – 5" is not negative
_DASH = r"–(?=[\w$.])|(?<=\w)[—―](?=\w)"


def ascii_signs(text: str) -> str:
    """The text in NFC, without invisible signs, and with quotes, dashes, spaces and full-width signs as in ASCII. Replies and
    references are compared so."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFC", compiled(_STACKED).sub(r"\1", text.translate(_SIGNS)))
    text = compiled(_FORMS).sub(lambda form: unicodedata.normalize("NFKC", form[0]), text)
    return compiled(_DASH).sub("-", text)


DENIED = r"(?:\bnot|n't|\bnever) (?:\w+ )?"  # before what a text says not to be so


def unpunctuated(text: str, instead: str = "", kept: str = "(?!)") -> str:
    """The text without ASCII's signs and the punctuation of any script. kept: a pattern of signs that stay."""
    drop = lambda sign: sign in string.punctuation or unicodedata.category(sign)[0] == "P"
    return re.sub(
        rf"({kept})|[^\w\s]|_",
        lambda sign: instead if not sign[1] and drop(sign[0]) else sign[0],
        text,
    )


def occurrences(sought: str, text: str) -> Iterator[int]:
    """Each place at which one text begins in another, overlapping ones too, in one pass (Knuth, Morris and Pratt, 1977)."""
    # of each beginning of `sought`: the length of the longest shorter one that it ends with
    borders = [0]
    length = 0
    for sign in sought[1:]:
        while length and sign != sought[length]:
            length = borders[length - 1]
        length += sign == sought[length]
        borders.append(length)
    length = 0
    for end, sign in enumerate(text, 1):
        while length and sign != sought[length]:
            length = borders[length - 1]
        length += sign == sought[length]
        if length == len(sought):
            yield end - length
            length = borders[-1]


# Thoughts and tokens


class Thought(NamedTuple):
    """What begins and ends the thoughts of a family of models, and a reply whose answer is 18."""

    family: str
    begins: str
    ends: str
    example: str


THOUGHTS = [Thought(**row) for row in table("thoughts")]
_BEGINS, _ENDS = (
    "|".join(forms) for forms in zip(*((row.begins, row.ends) for row in THOUGHTS), strict=True)
)
# An unclosed thought removes all after it, but for an <answer>.
_THOUGHT = rf"(?is)(?:{_BEGINS}).*?(?:{_ENDS}|(?=<answer>)|\Z)"
_TOKEN = r"<\|(?!(?:begin|end)_of_box)[^<>|\n]{1,40}\|>|</?s>|<(?:bos|eos|pad|start_of_turn|end_of_turn|endoftext|turn\|)>?|\[/?INST\]"
_BEFORE_REPLY = rf"\A(?:\s*(?:{_TOKEN}|(?<=>)model(?=\n)|assistant(?=\s*\n|<)|Assistant:))+"


def after_thoughts(text: str) -> str:
    """The text without thoughts; a lone end of thoughts removes all before it."""
    return re.split(f"(?i){_ENDS}", compiled(_THOUGHT).sub("", text))[-1]


def _reply(text: str) -> str:
    """The text without thoughts and the template's tokens: a token removes all after it."""
    return re.split(_TOKEN, compiled(_BEFORE_REPLY).sub("", after_thoughts(text)), maxsplit=1)[0]


# Marks


_ROWS = rules(
    fields=r"(?:final[ _]?)?(?:answer|choice|option|response|result|solution|output)",
    named=r"confidence(?!\ (?:interval|limit|bound|band|region|set)s?\b)|certainty",
    abroad="confiance|Konfidenz|Sicherheit|confianza|confiança|fiducia|уверенность|置信度|信心|確信度",
    unit=r"(?:\s?(?:-|–|to)\s?\d[\d.,]*)?\s?(?:%|percent\b|/\s?\d+|out\ of\ \d+)",
)
# Found before markdown and LaTeX are taken away; the group `answer` is what the form encloses.
ENCLOSING = _ROWS["enclosing"]
# How a text states its confidence. Signs before it are tried from their first one only: from each of ten thousand
# brackets, the search would take minutes.
STATED = _ROWS["stated"]
# Markup, in the order in which it is taken away.
BARED = _ROWS["bared"]

# Of an option: "é a letra B", "es la opción B".
_OPTION = r"(?-i:\s*(?:(?:a|o|e|la|el|il|die|de|option|opção|opción|opzione|letra|lettera|lettre|alternativa|optie)\ ){1,2}(?=[A-Z]\b))?"


def _opening(name: str, noun: str, verb: str, pattern: str, example: str) -> Rule:
    after = rf"(?:[:=】]|(?:{verb or '(?!)'})(?!\w)[:\s]?){_OPTION}"
    return Rule(name, pattern or rf"(?<!\w)(?:{noun})\s*{after}", example, "18")


# Found in plain text: only a colon, an equals sign or a form of 'to be' introduces an answer, "the answer depends on" does not.
OPENING = [_opening(**row) for row in table("marks")]
# Only where no option has this letter.
SHORT = Rule("A", r"(?-i:^[ \t]*A[ \t]*:)", "She has 6 * 3 = 18 left.\nA: 18", "18")
WHOLE = "unmarked"  # names the reading of a whole text

# a question that the model goes on to ask itself
ASKED = r"^[ \t*#]*+(?:Q|Question)[ \t]*+\d*+[ \t]*+:"
# marks of a text that are looked at, the last ones: each may be compared with every option
MOST = 1000
# {what ends an enclosed answer: the name of its mark}; control characters, which no model writes
CLOSED = {chr(0x0E + number): mark.name for number, mark in enumerate(ENCLOSING)}
_FLAGS = re.IGNORECASE | re.MULTILINE | re.VERBOSE
# each in a group of its own: `_named` finds which it was
_OPEN = "|".join(f"(?P<mark{number}>{mark.pattern})" for number, mark in enumerate(OPENING))
_MARKS = {True: f"{_OPEN}|(?P<short>{SHORT.pattern})", False: _OPEN}
_STATED = either(STATED)
_END = "|".join([f"[{''.join(CLOSED)}]", _STATED, ASKED])
_OF_CONFIDENCE = r"(?i)\bconfidence\b[^\n]*$"
# two answers of which neither is chosen alone
_JOINED = r"(?i)[ \t#,]*\b(or|and)\b[ \t#]*"
_OPENS_FORMULA = r"(?:\$|\\\(|\\\[)[ \t\n]*\Z"
_ENCLOSED = "(?ims)" + "|".join(
    mark.pattern.replace("?P<answer>", f"?P<{mark.name}>") for mark in ENCLOSING
)


def own_marks(text: str, words: Sequence[str]) -> str:
    """The text with 'Answer:' in place of a data set's own marks."""
    sought = "|".join(map(re.escape, words))
    return (
        re.sub(rf"(?:{sought})\s*[:=]?", "\nAnswer: ", text, flags=re.IGNORECASE) if words else text
    )


def opened(text: str) -> str:
    """The text with each enclosed answer on a line of its own, after 'Answer:', and a sign of CLOSED after it.

    'Answer("A") or Answer("B")' are one answer, 'A or B': neither of the two was chosen.
    """
    made, end = [], 0
    ends = {name: sign for sign, name in CLOSED.items()}
    for match in compiled(_ENCLOSED).finditer(text):
        form = match.lastgroup or ""
        inside = match[form].strip()
        between = compiled(_OPENS_FORMULA).sub("", text[end : match.start()])
        if compiled(_OF_CONFIDENCE).search(text[max(0, match.start() - 40) : match.start()]):
            made += [between, inside]
        elif made and made[-1] in CLOSED and (join := compiled(_JOINED).fullmatch(between)):
            sign = ", " if join[1].lower() == "and" else " or "
            made[-2] = f"{made[-2].rstrip()}{sign}{inside}\n"
        else:
            made += [between, f"\nAnswer: {inside}\n", ends[form]]
        end = match.end()
    return "".join([*made, text[end:]])


def statements(text: str, short: bool = True) -> list[Read]:
    """The parts of a plain text in the order in which they are searched for an answer: enclosed answers, the last one
    first; the text after each other mark, the last one first; then the whole text, without what it says of its confidence.
    Each has the name of its mark, the last one WHOLE.

    short: whether 'A:' at the start of a line is a mark, and not the option A.
    """
    marks = list(compiled(_MARKS[short], _FLAGS).finditer(text))[-MOST:]
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    end_of_answer = compiled(_END, _FLAGS)
    enclosed = []
    opened = []
    for mark, end in zip(marks, ends, strict=False):
        span = text[mark.end() : end]
        closing = re.search(f"[{''.join(CLOSED)}]", span)
        said = end_of_answer.split(span, maxsplit=1)[0].strip()
        if closing:
            enclosed.append(Read.of(said, CLOSED[closing[0]]))
        else:
            opened.append(Read.of(said, _named(mark)))
    return [*enclosed[::-1], *opened[::-1], Read.of(without_confidence(text), WHOLE)]


def _named(mark: re.Match) -> str:
    """The name of the row that a match of _MARKS is of."""
    group = mark.lastgroup or ""
    return SHORT.name if group == "short" else OPENING[int(group.removeprefix("mark"))].name


def without_confidence(text: str) -> str:
    """The text without what it says of its own confidence, unless it says nothing else."""
    bare = compiled(_STATED, _FLAGS).sub("", text)
    return bare if re.search(r"\w", bare) else text


def plain(text: str) -> str:
    """The text as it looks, without thoughts, tokens, markdown and HTML emphasis, LaTeX boxes and answer tags."""
    text = opened(_reply(ascii_signs(text)).replace("\\%", "%"))
    for row in BARED:
        text = compiled(row.pattern).sub(row.new, text)
    return text.strip()


def lines(text: str) -> list[str]:
    """The lines that hold a letter or a digit, stripped."""
    return [line.strip() for line in text.splitlines() if re.search(r"\w", line)]


def squeeze(text: str) -> str:
    """Lower case, no accents, single spaces, no quotes or punctuation around it: the form in which texts are compared."""
    # Only letters lose their marks: "\u2260" decomposes into an equals sign and a stroke.
    text = re.sub(
        r"(?<=[^\W\d_])[\u0300-\u036f]+", "", unicodedata.normalize("NFD", text.casefold())
    )
    return " ".join(text.split()).strip(" \"'.,;:!")


# characters of a reply without a mark; a longer text before a question repeats the prompt
LONGEST_REPLY = 100


def own_reply(read: Callable[..., Any]) -> Callable[..., Any]:
    """A reader of the reply alone, where the model goes on to ask itself a question: 'B\\n\\nQuestion: ...\\nAnswer: C' is B.

    What comes before that question has to state an answer; else the whole text is read. read: returns nothing, or a tuple that
    begins with None, for a text that states none.
    """

    @functools.wraps(read)
    def reply_first(text: str, *args, **options) -> Any:
        asked = [at.start() for at in re.finditer(ASKED, text, re.IGNORECASE | re.MULTILINE)]
        # it may repeat its own question
        first = asked[1:] if asked and not text[: asked[0]].strip() else asked
        head = text[: first[0]].strip() if first else text.strip()
        if head and first and (len(head) <= LONGEST_REPLY or len(statements(plain(head))) > 1):
            own = read(head, *args, **options)
            states = own[0] is not None if isinstance(own, tuple) else bool(own)
            if states:
                return own
        return read(text, *args, **options)

    return reply_first
