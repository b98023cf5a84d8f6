"""A reply as a reader sees it, without thoughts, tokens and markup; and its marks, where it says that its answer follows.

The forms that models, benchmarks and answer formats use are rows of tables. A mark opens a part of the text, which ends at the
next mark, at a stated confidence or at the next question. The last mark with a readable answer counts, as in the graders of
GSM8K and MATH. tests/test_marks.py reads each row's example.
"""

import functools
import re
import string
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from orce.text import Read, Rule, compiled, either, rules, table

# The text as it looks

# {signs: the ASCII sign that they look like}
_ALIKE = {"‘’‚‛′´‹›": "'", "“”„‟″«»「」『』": '"', "‐‑‒−﹣": "-", "。।۔٫": ".", "、،٬": ",", "؛": ";", "؟": "?", "٪": "%"}  # fmt: skip
_FULL_WIDTH = {0xFF01 + i: chr(0x21 + i) for i in range(94)}
_SIGNS = _FULL_WIDTH | {ord(sign): ascii for signs, ascii in _ALIKE.items() for sign in signs}
_INVISIBLE = r"[\xad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]"
_SPACE = r"[\xa0\u1680\u2000-\u200a\u202f\u205f\u3000]"
# More accents on one letter than the eight that stay: to normalise thousands of them would take minutes.
_STACKED = r"([\u0300-\u036f]{8})[\u0300-\u036f]+"
# Ligatures and the positional forms of Arabic letters.
_FORMS = r"[\ufb00-\ufdff\ufe70-\ufefc]+"
# A dash that is a hyphen or a minus sign. Another one begins a clause: "The answer – 5" is not negative.
_DASH = r"–(?=[\w$.])|(?<=\w)[—―](?=\w)"


def ascii_signs(text: str) -> str:
    """The text in NFC without invisible signs, with quotes, dashes, spaces and full-width signs as in ASCII: the form in which
    replies and references are compared."""
    if text.isascii():
        return text
    text = compiled(_INVISIBLE).sub("", text)
    text = compiled(_SPACE).sub(" ", text).translate(_SIGNS)
    text = compiled(_STACKED).sub(r"\1", text)
    text = unicodedata.normalize("NFC", text)
    text = compiled(_FORMS).sub(lambda form: unicodedata.normalize("NFKC", form[0]), text)
    return compiled(_DASH).sub("-", text)


DENIED = r"(?:\bnot|n't|\bnever) (?:\w+ )?"  # stands before what a text denies


def unpunctuated(text: str, instead: str = "", kept: str = "(?!)") -> str:
    """The text with `instead` for each ASCII sign and each punctuation mark of any script. kept: a pattern of signs that stay."""

    def replacement(match: re.Match) -> str:
        sign = match[0]
        if match[1]:
            return sign
        is_mark = sign in string.punctuation or unicodedata.category(sign).startswith("P")
        return instead if is_mark else sign

    return re.sub(rf"({kept})|[^\w\s]|_", replacement, text)


def occurrences(sought: str, text: str) -> Iterator[int]:
    """Each place at which `sought` begins in the text, overlapping ones too (Knuth, Morris and Pratt, 1977).

    In one pass: calls of str.find take quadratic time where the places overlap.
    """
    # borders[n - 1]: how long a proper beginning of the first n characters of `sought` is also their end
    borders = [0]

    def extend(length: int, sign: str) -> int:
        """How many characters of `sought` the text ends with, after `length` of them and one more sign."""
        while length and sign != sought[length]:
            length = borders[length - 1]
        return length + (sign == sought[length])

    for sign in sought[1:]:
        borders.append(extend(borders[-1], sign))
    length = 0
    for end, sign in enumerate(text, 1):
        length = extend(length, sign)
        if length == len(sought):
            yield end - length
            length = borders[-1]


# Thoughts and tokens


class Thought(NamedTuple):
    """Patterns of what begins and ends the thoughts of a family of models; example: a reply whose answer is 18."""

    family: str
    begins: str
    ends: str
    example: str


THOUGHTS = [Thought(**row) for row in table("thoughts")]
_BEGINS = "|".join(thought.begins for thought in THOUGHTS)
_ENDS = "|".join(thought.ends for thought in THOUGHTS)
# A thought without an end goes on to an <answer>, or to the end of the text.
_THOUGHT = rf"(?is)(?:{_BEGINS}).*?(?:{_ENDS}|(?=<answer>)|\Z)"
_TOKEN = r"<\|(?!(?:begin|end)_of_box)[^<>|\n]{1,40}\|>|</?s>|<(?:bos|eos|pad|start_of_turn|end_of_turn|endoftext|turn\|)>?|\[/?INST\]"
_BEFORE_REPLY = rf"\A(?:\s*(?:{_TOKEN}|(?<=>)model(?=\n)|assistant(?=\s*\n|<)|Assistant:))+"


def after_thoughts(text: str) -> str:
    """The text without thoughts; a lone end of thoughts removes all before it."""
    text = compiled(_THOUGHT).sub("", text)
    return re.split(f"(?i){_ENDS}", text)[-1]


def _reply(text: str) -> str:
    """The text without thoughts, up to the first token of a chat template that stands after its beginning."""
    text = compiled(_BEFORE_REPLY).sub("", after_thoughts(text))
    return re.split(_TOKEN, text, maxsplit=1)[0]


# Marks


_ROWS = rules(
    fields=r"(?:final[ _]?)?(?:answer|choice|option|response|result|solution|output)",
    named=r"confidence(?!\ (?:interval|limit|bound|band|region|set)s?\b)|certainty",
    abroad="confiance|Konfidenz|Sicherheit|confianza|confiança|fiducia|уверенность|置信度|信心|確信度",
    unit=r"(?:\s?(?:-|–|to)\s?\d[\d.,]*)?\s?(?:%|percent\b|/\s?\d+|out\ of\ \d+)",
)
# Found before markdown and LaTeX are taken away; the group `answer` is what the form encloses.
ENCLOSING = _ROWS["enclosing"]
# How a text states its confidence. Punctuation before it is tried from its first sign alone: begun again at each of ten
# thousand brackets, the search would take minutes.
STATED = _ROWS["stated"]
# Markup, in the order in which it is taken away.
BARED = _ROWS["bared"]

# The words before an option's letter: "é a letra B", "es la opción B".
_OPTION = r"(?-i:\s*(?:(?:a|o|e|la|el|il|die|de|option|opção|opción|opzione|letra|lettera|lettre|alternativa|optie)\ ){1,2}(?=[A-Z]\b))?"


def _opening_rule(name: str, noun: str, verb: str, pattern: str, example: str) -> Rule:
    after = rf"(?:[:=】]|(?:{verb or '(?!)'})(?!\w)[:\s]?){_OPTION}"
    return Rule(name, pattern or rf"(?<!\w)(?:{noun})\s*{after}", example, "18")


# Found in plain text. Only a colon, an equals sign or a form of 'to be' introduces an answer: "the answer depends on" does not.
OPENING = [_opening_rule(**row) for row in table("marks")]
# A mark only where no option has this letter.
SHORT = Rule("A", r"(?-i:^[ \t]*A[ \t]*:)", "She has 6 * 3 = 18 left.\nA: 18", "18")
WHOLE = "unmarked"  # in place of a mark's name, where the whole text was read

# A question that the model goes on to ask itself.
ASKED = r"^[ \t*#]*+(?:Q|Question)[ \t]*+\d*+[ \t]*+:"
# Only so many of a text's last marks are looked at, since the text after each may be compared with every option.
MOST = 1000
# {the sign that `mark_enclosed` puts after an enclosed answer: the name of its mark}; control characters, which no model writes.
CLOSED = {chr(0x0E + number): mark.name for number, mark in enumerate(ENCLOSING)}
_CLOSING = f"[{''.join(CLOSED)}]"
_FLAGS = re.IGNORECASE | re.MULTILINE | re.VERBOSE
# Each mark has a group, whose name tells which of them was found.
_GROUPS = {f"mark{number}": mark for number, mark in enumerate([*OPENING, SHORT])}
_MARKS = [f"(?P<{group}>{mark.pattern})" for group, mark in _GROUPS.items()]
_WITH_SHORT = "|".join(_MARKS)
_WITHOUT_SHORT = "|".join(_MARKS[:-1])
_STATED = either(STATED)
_END = f"{_CLOSING}|{_STATED}|{ASKED}"
_OF_CONFIDENCE = r"(?i)\bconfidence\b[^\n]*$"
# Between two answers of which neither is chosen alone.
_JOINED = r"(?i)[ \t#,]*\b(or|and)\b[ \t#]*"
_OPENS_FORMULA = r"(?:\$|\\\(|\\\[)[ \t\n]*\Z"
_ENCLOSED = "(?ims)" + "|".join(
    mark.pattern.replace("?P<answer>", f"?P<{mark.name}>") for mark in ENCLOSING
)


def own_marks(text: str, words: Sequence[str]) -> str:
    """The text with 'Answer:' in place of a data set's own marks."""
    if not words:
        return text
    sought = "|".join(map(re.escape, words))
    marked, count = re.subn(rf"(?:{sought})\s*[:=]?", "\nAnswer: ", text, flags=re.IGNORECASE)
    return marked if count else text  # which may know that it was cut off


def mark_enclosed(text: str) -> str:
    """The text with each enclosed answer on a line of its own, after 'Answer:', and a sign of CLOSED after it.

    'Answer("A") or Answer("B")' are one answer, 'A or B': neither of the two was chosen. A confidence may be enclosed too.
    """
    closing_signs = {name: sign for sign, name in CLOSED.items()}
    parts: list[str] = []
    end = 0
    for match in compiled(_ENCLOSED).finditer(text):
        form = match.lastgroup or ""
        inside = match[form].strip()
        between = compiled(_OPENS_FORMULA).sub("", text[end : match.start()])
        before = text[max(0, match.start() - 40) : match.start()]
        end = match.end()
        join = compiled(_JOINED).fullmatch(between)
        if compiled(_OF_CONFIDENCE).search(before):
            parts += [between, inside]
        elif join and parts and parts[-1] in CLOSED:
            sign = ", " if join[1].lower() == "and" else " or "
            parts[-2] = f"{parts[-2].rstrip()}{sign}{inside}\n"
        else:
            parts += [between, f"\nAnswer: {inside}\n", closing_signs[form]]
    return "".join([*parts, text[end:]])


def statements(text: str, short: bool = True) -> list[Read]:
    """The parts of a plain text in the order in which an answer is sought: enclosed answers, then what follows other marks, the
    last one first in both; then the whole text without what it says of its confidence. Each is Read by the name of its mark,
    the whole by WHOLE.

    short: whether 'A:' at the start of a line is a mark, and not the option A.
    """
    any_mark = compiled(_WITH_SHORT if short else _WITHOUT_SHORT, _FLAGS)
    marks = [*any_mark.finditer(text)][-MOST:]
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    enclosed = []
    after_marks = []
    for mark, end in zip(marks, ends, strict=False):
        span = text[mark.end() : end]
        said = compiled(_END, _FLAGS).split(span, maxsplit=1)[0].strip()
        if closing := re.search(_CLOSING, span):
            enclosed.append(Read.of(said, CLOSED[closing[0]]))
        else:
            after_marks.append(Read.of(said, _GROUPS[str(mark.lastgroup)].name))
    return [*enclosed[::-1], *after_marks[::-1], Read.of(without_confidence(text), WHOLE)]


def without_confidence(text: str) -> str:
    """The text without what it says of its own confidence, unless it says nothing else."""
    bare = compiled(_STATED, _FLAGS).sub("", text)
    return bare if re.search(r"\w", bare) else text


def plain(text: str) -> str:
    """The text without thoughts, tokens, Markdown, HTML emphasis, LaTeX boxes and answer tags; `mark_enclosed` marks what these
    enclosed."""
    text = mark_enclosed(_reply(ascii_signs(text)).replace("\\%", "%"))
    for row in BARED:
        text = compiled(row.pattern).sub(row.new, text)
    return text.strip()


def lines(text: str) -> list[str]:
    """The lines that hold a letter or a digit, stripped."""
    return [line.strip() for line in text.splitlines() if re.search(r"\w", line)]


def squeeze(text: str) -> str:
    """Lower case, no accents, single spaces, no quotes or punctuation around it: the form in which texts are compared."""
    text = unicodedata.normalize("NFD", text.casefold())
    # Only letters lose their marks: "\u2260" decomposes into an equals sign and a stroke.
    text = re.sub(r"(?<=[^\W\d_])[\u0300-\u036f]+", "", text)
    return " ".join(text.split()).strip(" \"'.,;:!")


# Characters of a reply without a mark: a longer text before a question repeats the prompt.
LONGEST_REPLY = 100


def own_reply(read: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a reader of texts: where the model goes on to ask itself a question, it reads what comes before that question.
    'B\\n\\nQuestion: ...\\nAnswer: C' is B. Where that states no answer, the whole text is read.

    read(text, ...): gives a false value, or a tuple that begins with None, for a text without an answer.
    """

    @functools.wraps(read)
    def reply_first(text: str, *args, **options) -> Any:
        asked = [at.start() for at in re.finditer(ASKED, text, re.IGNORECASE | re.MULTILINE)]
        if asked and not text[: asked[0]].strip():
            asked.pop(0)  # the reply repeats its own question
        head = text[: asked[0]].strip() if asked else ""
        if head and (len(head) <= LONGEST_REPLY or len(statements(plain(head))) > 1):
            own = read(head, *args, **options)
            if isinstance(own, tuple):
                states_one = own[0] is not None
            else:
                states_one = bool(own) or own == 0  # a confidence of 0 is one
            if states_one:
                return own
        return read(text, *args, **options)

    return reply_first
