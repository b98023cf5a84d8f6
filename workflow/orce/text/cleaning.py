"""The text of a reply without its dress: reasoning, markdown, LaTeX, typographic signs; and the reply alone, where a model goes on."""

import functools
import re
import unicodedata
from collections.abc import Callable
from typing import Concatenate, ParamSpec

from orce.text.marks import ASKED, opened, statements

_FULL_WIDTH = {0xFF01 + i: chr(0x21 + i) for i in range(94)}
_ASCII = _FULL_WIDTH | {0x2212: "-", 0x2019: "'", 0x201C: '"', 0x201D: '"'}


def strip_thinking(text: str) -> str:
    """The text without reasoning blocks. An unclosed block removes all after it, but for an <answer>; a lone closing tag
    removes all before it."""
    text = re.sub(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|(?=<answer>)|\Z)", "", text, flags=re.DOTALL | re.IGNORECASE)
    return re.split(r"</think(?:ing)?>", text, flags=re.IGNORECASE)[-1]


def ascii_signs(text: str) -> str:
    """The text with typographic quotes, minus and full-width signs as in ASCII. Replies and references are compared so."""
    return text.translate(_ASCII)


def plain(text: str) -> str:
    """The text without reasoning, markdown emphasis, LaTeX boxes and answer tags; typographic signs as in ASCII."""
    text = ascii_signs(strip_thinking(text)).replace("\\%", "%")
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


_NEXT_QUESTION = re.compile(ASKED, re.IGNORECASE | re.MULTILINE)
LONGEST_REPLY = 100  # characters of a reply without a mark; a longer text before a question repeats the prompt


P = ParamSpec("P")


def own_reply(read: Callable[Concatenate[str, P], str | None]) -> Callable[Concatenate[str, P], str | None]:
    """A reader of the reply alone, where the model goes on to ask itself a question: 'B\\n\\nQuestion: ...\\nAnswer: C' is B.

    What comes before that question has to state an answer; else the whole text is read.
    """

    @functools.wraps(read)
    def reply_first(text: str, *args: P.args, **options: P.kwargs) -> str | None:
        head = _NEXT_QUESTION.split(text, maxsplit=1)[0].strip()
        alone = head and head != text.strip() and (len(head) <= LONGEST_REPLY or len(statements(plain(head))) > 1)
        return (read(head, *args, **options) if alone else None) or read(text, *args, **options)

    return reply_first
