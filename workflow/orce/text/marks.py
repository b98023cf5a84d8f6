"""Where a text says that its answer follows: the marks of models, benchmarks and answer formats, in one table; and the text
without markup.

A mark belongs to the text that it opens, which ends at the next mark, at a stated confidence or at the next question. The
last mark with a readable answer counts, as in the graders of GSM8K and MATH. tests/test_marks.py reads each row's example.
"""

import functools
import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple


class Mark(NamedTuple):
    """A form of announcing an answer: its pattern, a text that uses it, and the answer which that text states."""

    name: str
    pattern: str
    example: str
    answer: str


# Found before markdown and LaTeX are taken away; the group `answer` is what the form encloses.
ENCLOSING = (
    Mark("tag", r"<answer>(?P<answer>.*?)(?:</answer>|\Z)", "<answer> 18 </answer> <confidence> 0.9 </confidence>", "18"),
    Mark("box", r"(?:\$|\\\(|\\\[)?\s*\\boxed\s*\{(?P<answer>(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*)\}\s*(?:\$|\\\)|\\\])?",
         r"So $x = \boxed{\text{18}}$ in all.", "18"),
    Mark("hashes", r"(?<!\S)####[ \t]*(?P<answer>[-$€£]?[ ]?\d[^\n]{0,30})$", "6 + 12 = <<6+12=18>>18 fruits.\n#### 18", "18"),
    Mark("call", r"""\banswer\(\s*["'“”]?(?P<answer>(?<=["'“”])[^"“”\n]{1,80}?|[A-Z]\b|-?\d[\d.,]*)["'“”]?\s*\)""",
         'Thought: 6 * 3 = 18.\nAction: Answer("18")', "18"),
)  # fmt: skip

# Found in plain text: only a colon, an equals sign or a form of 'to be' introduces an answer, "the answer depends on" does not.
OPENING = (
    Mark("English", r"""(?<!this\ )(?<!that\ )\b(?:answer(?:\ (?:choice|option))?|ans|(?:correct|best|right)\ (?:option|choice)|(?:(?<=my\ )|(?<=best\ )|(?<=final\ )|(?<![\w']\ ))guess)\b(?:\ to\ (?:this|the)\ question)?["')]*\s*
                        (?:[:=]|(?:(?:would|should|must)\s)?(?:is|be)\b[:\s])""", "So the final answer is 18.", "18"),
    Mark("German", r"\bantwort\b\s*(?:[:=]|(?:ist|lautet|wäre)\b[:\s])", "Die richtige Antwort lautet 18.", "18"),
    Mark("French", r"\br[ée]ponse\b(?:\ (?:finale|correcte))?\s*(?:[:=]|(?:est|serait)\b[:\s])", "Réponse : 18", "18"),
    Mark("Spanish", r"\brespuesta\b(?:\ (?:final|correcta))?\s*(?:[:=]|(?:es|sería)\b[:\s])", "La respuesta correcta es 18.", "18"),
    Mark("Chinese", r"(?:答案|^答)\s*(?:[:是为]\s*:?)", "3 × 6，所以答案是18。", "18"),
)  # fmt: skip

# Only where no option has this letter.
SHORT = Mark("A:", r"(?-i:^[ \t]*A[ \t]*:)", "She has 6 * 3 = 18 left.\nA: 18", "18")

ASKED = r"^[ \t]*(?:Q|Question)[ \t]*\d*[ \t]*:"  # a question that the model goes on to ask itself
CLOSED = "\x03"  # ends an enclosed answer (the control character "end of text", which no model writes)
# What ends an answer otherwise: a confidence, or the next question. Signs before it are tried from their first one only:
# from each of ten thousand brackets, the search would take minutes.
ENDS = (
    CLOSED,
    r"""(?<![\s,;.(<])[\s,;.(<]*\b(?:(?:my|the|overall|with|and|a)\ )*(?:confidence|certainty)\b[^\n:=\d]{0,30}[:=]?\s*[~\d.]""",
    r"""(?<![\s,;.(])[\s,;.(]*(?:\b(?:and\ )?I(?:'m|\ am)\ )?(?:about\ |roughly\ )?\d+(?:\.\d+)?\ ?%\ (?:sure|certain|confident)\b""",
    ASKED,
)

_FLAGS = re.IGNORECASE | re.MULTILINE | re.VERBOSE
_OPEN = "|".join(mark.pattern for mark in OPENING)
_MARKS = {True: re.compile(f"{_OPEN}|{SHORT.pattern}", _FLAGS), False: re.compile(_OPEN, _FLAGS)}
_END = re.compile("|".join(ENDS), _FLAGS)
_OF_CONFIDENCE = re.compile(r"\bconfidence\b[^\n]*$", re.IGNORECASE)
_JOINED = re.compile(r"[ \t#,]*\b(or|and)\b[ \t#]*", re.IGNORECASE)  # two answers of which neither is chosen alone
_ENCLOSED = re.compile(
    "|".join(f"(?:{mark.pattern.replace('(?P<answer>', f'(?P<a{i}>')})" for i, mark in enumerate(ENCLOSING)),
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)


def opened(text: str) -> str:
    """The text with each enclosed answer on a line of its own, after 'Answer:', and CLOSED after it.

    'Answer("A") or Answer("B")' are one answer, 'A or B': neither of the two was chosen.
    """
    made, end = [], 0
    for match in _ENCLOSED.finditer(text):
        inside = next(filter(None, match.groups()), "").strip()
        between = text[end : match.start()]
        join = _JOINED.fullmatch(between) if made and made[-1] == CLOSED else None
        if _OF_CONFIDENCE.search(text[max(0, match.start() - 40) : match.start()]):
            made += [between, inside]
        elif join:
            sign = ", " if join[1].lower() == "and" else " or "
            made[-2:] = [f"{made[-2].rstrip()}{sign}{inside}\n", CLOSED]
        else:
            made += [between, f"\nAnswer: {inside}\n", CLOSED]
        end = match.end()
    return "".join([*made, text[end:]])


def statements(text: str, short: bool = True) -> list[str]:
    """The parts of a plain text in the order in which they are searched for an answer: enclosed answers, the last one
    first; the text after each other mark, the last one first; then the whole text.

    short: whether 'A:' at the start of a line is a mark, and not the option A.
    """
    marks = list(_MARKS[short].finditer(text))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    spans = [text[mark.end() : end] for mark, end in zip(marks, ends, strict=False)][::-1]
    spans.sort(key=lambda span: CLOSED not in span)
    return [*(_END.split(span)[0].strip() for span in spans), text]


# The text without reasoning, markdown, LaTeX and typographic signs

_ASCII = {0xFF01 + i: chr(0x21 + i) for i in range(94)} | {0x2212: "-", 0x2019: "'", 0x201C: '"', 0x201D: '"'}


def ascii_signs(text: str) -> str:
    """The text with typographic quotes, minus and full-width signs as in ASCII. Replies and references are compared so."""
    return text.translate(_ASCII)


def plain(text: str) -> str:
    """The text without reasoning, markdown emphasis, LaTeX boxes and answer tags; typographic signs as in ASCII."""
    # An unclosed block of reasoning removes all after it, but for an <answer>; a lone closing tag removes all before it.
    text = re.sub(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|(?=<answer>)|\Z)", "", text, flags=re.DOTALL | re.IGNORECASE)
    text = ascii_signs(re.split(r"</think(?:ing)?>", text, flags=re.IGNORECASE)[-1]).replace("\\%", "%")
    text = re.sub(r"\\(?:text|textbf|mathrm|mathbf)\{([^{}]*)\}", r"\1", opened(text)).replace("\\!", "")
    # A heading "### Final Answer" says as much as "Answer:".
    text = re.sub(r"^([ \t]*#+[ \t][^\n]{0,30}\banswer)[ \t*]*$", r"\1:", text, flags=re.IGNORECASE | re.MULTILINE)
    text = re.sub(r"\*\*|__|`+|^[ \t]*#+[ \t]+", "", text, flags=re.MULTILINE)
    return re.sub(r"(?<![\w*])\*(\S(?:[^*\n]*\S)?)\*(?![\w*])", r"\1", text).strip()


def lines(text: str) -> list[str]:
    """The lines that hold a letter or a digit, stripped."""
    return [line.strip() for line in text.splitlines() if re.search(r"\w", line)]


def squeeze(text: str) -> str:
    """Lower case, no accents, single spaces, no quotes or punctuation around it: the form in which texts are compared."""
    # Only letters lose their marks: "\u2260" decomposes into an equals sign and a stroke.
    text = re.sub(r"(?<=[^\W\d_])[\u0300-\u036f]+", "", unicodedata.normalize("NFD", text.casefold()))
    return " ".join(text.split()).strip(" \"'.,;:!")


LONGEST_REPLY = 100  # characters of a reply without a mark; a longer text before a question repeats the prompt


def own_reply(read: Callable[..., str | None]) -> Callable[..., str | None]:
    """A reader of the reply alone, where the model goes on to ask itself a question: 'B\\n\\nQuestion: ...\\nAnswer: C' is B.

    What comes before that question has to state an answer; else the whole text is read.
    """

    @functools.wraps(read)
    def reply_first(text: str, *args, **options) -> str | None:
        head = re.split(ASKED, text, maxsplit=1, flags=re.IGNORECASE | re.MULTILINE)[0].strip()
        alone = head and head != text.strip() and (len(head) <= LONGEST_REPLY or len(statements(plain(head))) > 1)
        return (read(head, *args, **options) if alone else None) or read(text, *args, **options)

    return reply_first
