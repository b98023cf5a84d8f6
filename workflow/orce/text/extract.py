"""Reading what language models write: answers, numbers, stated confidences, guesses. Used by tasks and methods.

Every parser takes free text and returns None (or an empty list) where the text does not state the value. A parser never
guesses: a misread answer would count as the model's own error, while an unreadable text is counted as unreadable.
"""

import functools
import re
import unicodedata
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Concatenate, ParamSpec

from orce.text.marks import ASKED, opened, statements

# fmt: off
_ONES = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]
# fmt: on
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_VALUES = dict(zip([*_ONES, *_TENS, "hundred"], [*range(20), *range(20, 101, 10)], strict=True))
_UP_TO_99 = rf"(?:{'|'.join(_TENS)})(?:[- ](?:{'|'.join(_ONES[1:10])}))?|{'|'.join(_ONES[::-1])}"
_IN_WORDS = rf"(?:(?:(?:one|a)[ ])?hundred|{_UP_TO_99})"
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|\d+(?:\.\d+)?|\.\d+)"
_OPERATION = rf"\s*(?:[-+*/x×÷]|plus|minus|times|divided by)\s*{_DIGITS}"

# The number that begins a text, if it is more than the first part of an expression, of alternatives or of a time of day.
_LEADING = re.compile(
    rf"[\s:(\"'$]*(?:(-?[ $]?{_DIGITS})(?!\.?\d|:\d|\s+or\s+[$]?\d|e[-+]?\d|\^)|({_IN_WORDS})\b)(?!{_OPERATION})",
    re.IGNORECASE,
)
_SPACED = re.compile(r"(?<![\d.,:])\d{1,3}(?:[ \u00a0\u202f]\d{3})+(?![\d-]|[.,:]\d)\b")  # 118 000

_SO = re.compile(
    r"(?<=[.!?])\s+(?=(?:Therefore|Thus|Hence|So|In total)\b)|,\s+(?=so\b(?! that))"
)  # a conclusion in a line

_EQUALS = re.compile(rf"([^\n=]*)=\s*(?=(-?[$€£]?{_DIGITS})(?!\.?\d|{_OPERATION}))")
_CALCULATION = re.compile(r"\d[^\d\n]*[-+*/x×÷][^\d\n]*\d")

_TIME = re.compile(r"\b\d\d?:\d\d\b")
_NUMBER = rf"(?<![\w.])(?<![\d)]\s)-?{_DIGITS}|(?<![\w.]){_DIGITS}"
# What a sentence says beside its answer, surely: 'needs 9 shelves for the 27 books (4 more)'; and probably: '$18 for 3 weeks'.
_GIVEN = re.compile(
    rf"\([^()]*\)|\b(?:so that|in order to|because|since)\b.*$|\b(?:the|all|remaining|other|each|every)\s+[$€£]?{_DIGITS}",
    re.IGNORECASE,
)
_BESIDE = re.compile(rf"\b(?:after|for|from|in|(?<!total )of|per|with)\s+(?:an?\s+)?[$€£]?{_DIGITS}", re.IGNORECASE)

# A line that is a number and nothing else but a unit or a sign of currency.
_ALONE = rf"[\s=$€£\"'(]*-?[ ]?{_DIGITS}(?:[\s%.)\"']*|[ ]?[^\W\d]+[.]?)"

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


# Numbers


def to_number(text: str) -> str | None:
    """'1,200', '- 5', '17.0', '$3' as canonical decimal text ('1200', '-5', '17', '3'); None if it is not a number.

    A comma separates thousands: '3,5' is not a number.
    """
    bare = re.sub(r"[$\s]", "", ascii_signs(text))
    if "," in bare and not re.fullmatch(rf"[-+]?{_DIGITS}", bare):
        return None
    try:
        value = Decimal(bare.replace(",", ""))
    except InvalidOperation:
        return None
    return format(value.normalize() if value else Decimal(0), "f") if value.is_finite() else None


def words_to_number(text: str) -> int:
    """'eighty-five' as 85; words from zero to one hundred."""
    parts = [_VALUES[word] for word in re.split(r"[-\s]+", text.lower().strip()) if word != "a"]
    return 100 if 100 in parts else sum(parts)


@own_reply
def number(text: str, conclusion: bool = False) -> str | None:
    """The number that a text gives as its answer, as canonical decimal text, or None.

    The last marked answer (orce.text.marks) that contains a number counts. Without one, the first line that is more than
    an expression counts: its number after '=', else after 'is' or 'equals', else the number it begins with, else its
    last number. conclusion: the text may reason first, so without a mark its last line with a number counts in place of
    the first one, unless the first is a number alone; a text that was cut off at its token budget has no last line. So
    does what follows a mark, if it calculates in place of beginning with a number.
    """
    *stated, whole = statements(_SPACED.sub(lambda spaced: re.sub(r"\s", "", spaced[0]), plain(text)))
    results = _results(whole) if conclusion else []
    for part in stated:
        said = lines(part)
        if conclusion and not _LEADING.match(said[0] if said else "") and _results("\n".join(said[1:])):
            said = said[::-1]
        if (value := _first(said, results, conclusion)) is not None:
            return value
    written = lines(whole)
    said = _unlisted(written)
    if conclusion and said and (said[0] != written[0] or not re.fullmatch(_ALONE, said[0])):
        said = [] if getattr(text, "cut", False) else said[::-1]
    return _first(said, results, conclusion)


def _first(said: Sequence[str], results: Sequence[str], conclusion: bool) -> str | None:
    """The number of the first line that has one; conclusion: of what follows 'so' in a line that begins with no number."""
    concluded = [_SO.split(line)[-1] if conclusion and not _LEADING.match(line) else line for line in said]
    return next(filter(None, (_number_of_line(line, results) for line in concluded)), None)


def _results(text: str) -> list[str]:
    """The numbers on the right of '=', the last one first, without what is given ('cards = 52') before any calculation."""
    sides = _EQUALS.findall(text)
    first = next((i for i, (left, _) in enumerate(sides) if _CALCULATION.search(left)), len(sides))
    return [value for _, right in (sides[first:] or sides)[::-1] if (value := to_number(right))]


def _unlisted(said: list[str]) -> list[str]:
    """Lines without 'Step 5:' and the numbers or dashes of a list, which has more than one: '5. Thus, it takes 3 bolts' is not 5."""
    said = [re.sub(r"^Step \d+[:.]\s*", "", line) for line in said]
    if sum(bool(re.match(r"[-*\u2022]\s+\S", line)) for line in said) > 1:
        said = [re.sub(r"^[-*\u2022]\s+", "", line) for line in said]
    items = [re.match(r"(\d{1,2})[.)]\s+(?=\S)", line) for line in said]
    numbers = {int(item[1]) for item in items if item}
    listed = [item and {int(item[1]) - 1, int(item[1]) + 1} & numbers for item in items]
    return [
        line[item.end() :] if item and in_list else line
        for line, item, in_list in zip(said, items, listed, strict=True)
    ]


def _number_of_line(line: str, results: Sequence[str] = ()) -> str | None:
    """The number that a line states. Where a sentence has several, the last of `results` among them: 'she pays $64 for 16
    glasses' after '40 + 24 = 64'."""
    if re.fullmatch(rf"{_DIGITS}(?:{_OPERATION})+\s*=?", line):
        return None
    for sign in (r"=", r"\b(?:is|equals|makes|gives|to)\b"):
        for part in re.split(sign, line, flags=re.IGNORECASE)[:0:-1]:
            result = _LEADING.match(part)
            if result:
                return _canonical(result)
    # "4 + 0 = undefined" and "1 is not a number" contain numbers but give none as the result.
    if re.search(r"=\s*[^\s\d]|\b(?:(?:is|are|was|were|do|does|did|can|could) ?not|not an?|undefined)\b", line):
        return None
    leading = _LEADING.match(line)
    if leading and not (results and results[0] in _numbers(line)):
        return _canonical(leading)
    # Nor does "65 * 2 = 13*2".
    if re.search(rf"=\s*{_DIGITS}(?:{_OPERATION})+[\s=.]*$", line):
        return None
    # Nor do '36/2', '2:30', '18 or 19' and 'between 17 and 19'; '2:00' alone is 2.
    hours = [] if (bare := _TIME.sub("", line)) and _numbers(bare) else re.findall(r"\b(\d\d?):00\b", line)
    line = re.sub(rf"{_DIGITS}(?:\s*\^\s*{_DIGITS}|{_OPERATION})+", "", bare)
    if re.search(rf"{_DIGITS}\s+or\s+{_DIGITS}|\bbetween\s+\S*{_DIGITS}", line):
        return None
    new = _GIVEN.sub(" ", line)
    parts = [_numbers(_BESIDE.sub(" ", new)), _numbers(new), _numbers(line), hours]
    computed = (value for part in parts[:2] for value in results if value in part)
    return next(computed, None) or next((part[-1] for part in parts if part), None)


def _numbers(line: str) -> list[str]:
    return [value for value in map(to_number, re.findall(_NUMBER, line)) if value]


def _canonical(match: re.Match) -> str | None:
    return to_number(match[1]) if match[1] else str(words_to_number(match[2]))


# Yes or no

_WORDS = {"yes": "yes", "yeah": "yes", "true": "yes", "correct": "yes", "no": "no", "nope": "no", "false": "no"}
_MARKED = r"[\s\"'(\[]*(?:\d{1,2}[.)]\s+|[-*\u2022]\s+)?[\"'(\[]*"  # quotes, a list number or a bullet
# The word is the answer only if punctuation sets it off; "no longer", "no one" and "No. 5" are not answers.
_SET_OFF = r"(?=[\"')\]]*(?:$|[,;:!)\n]|\.(?!\s*\d)|\s+[-\u2013\u2014(]|\s+(?:because|since|as|it|he|she|they|this|that|there)\b))"


@own_reply
def yes_or_no(text: str) -> str | None:
    """The 'yes' or 'no' that a text answers with, or None: 'No, the answer is not an integer.', '2. Yes, he ...', 'False'.

    The last 'Answer: ...' with one of them counts; without one, the word that opens the text, else the one that ends it.
    """
    text = plain(text)
    *stated, whole = statements(text)
    word = rf"({'|'.join(_WORDS)})"
    opening = re.compile(rf"{_MARKED}{word}{_SET_OFF}", re.IGNORECASE)
    for part in [*stated, whole]:
        said = lines(part)
        if said and (found := opening.match(said[0])):
            return _WORDS[found[1].lower()]
    said = lines(whole)
    found = re.match(
        rf"{_MARKED}(yes|no)\b(?!\.?\s*\d|[- ]one\b|\s+(?:longer|more|less|idea|answer|and\s+no)\b)",
        whole,
        re.IGNORECASE,
    )
    found = found or re.search(
        rf"(?:^|[,;:.]\s+|\b(?:so|is|be)\s+)(?:a |definitely )?{word}[.!\"')]*$",
        said[-1] if said else "",
        re.IGNORECASE,
    )
    return _WORDS[found[1].lower()] if found else None


# Confidences

_PROBABILITY = re.compile(
    rf"""(?<![\w.,])(?P<sign>-[ ]?)?
    (?:(?P<value>0,\d+|\d\d?,\d+(?=[ ]?%)|\d+(?:\.\d+)?|\.\d+)
      |(?P<words>{_IN_WORDS})(?=[ ]?(?:%|per[ ]?cent|out[ ]of|[.,;)!\n]|$)))
    (?P<range>[ ]?%?[ ]?(?:-|\u2013|to[ ])[ ]?\d+)?
    (?:[ ]?(?P<percent>%|per[ ]?cent\b)|[ ]?(?:/|out[ ]of)[ ]?(?P<scale>\d+))?
    (?!\w|[.,]\d)""",
    re.IGNORECASE | re.VERBOSE,
)
# After one of these words or signs, a number that follows 'Confidence:' is not the confidence: it belongs to a repeated
# scale, to another field, to the explanation of a placeholder ('N, where N is 0'), to a negation or to a bound.
_NO_VALUE = re.compile(
    r"\b(?:answer|between|from|integer|number|question|option|step|where|not|least|most|more|less|over|under|above|below|up)\b"
    r"|n't\b|[<>\u2264\u2265]",
    re.IGNORECASE,
)
# Nor is a number with one of these after it: alternatives ('80 or 90'), an error ('85 \u00b1 5'), odds ('3:1', '1 in 3'), an angle,
# the scale ('3 (1-5)').
_NOT_ALONE = re.compile(
    r"\s*%?\s*(?:(?:or|,|\u00b1|\+/-|:|in)\s*\d|\u00b0|\(\d+\s*(?:-|\u2013|to)\s*\d)", re.IGNORECASE
)


def probability(match: re.Match) -> float | None:
    """The value in [0, 1] of a match of the pattern for stated probabilities, or None if it lies outside or is a range.

    A number with a decimal point and at most 1 is a probability ('0.85', '1.0'); every other number is a percentage.
    So the integer '1', stated on the scale from 0 to 100, is one percent and not certainty.
    """
    if match["sign"] or match["range"] or _NOT_ALONE.match(match.string, match.end()):
        return None
    stated = match["value"].replace(",", ".") if match["value"] else str(words_to_number(match["words"]))
    value = Decimal(stated)
    if match["scale"]:
        scale = Decimal(match["scale"])
        odds = scale != 100 and value + scale == 100  # "50/50"
        value = value / scale if scale and not odds else Decimal(2)
    elif match["percent"] or "." not in stated or value > 1:
        value = value / 100
    return float(value) if value <= 1 else None


def confidence(text: str) -> float | None:
    """The confidence in [0, 1] that a text states, or None.

    The last value after the word 'confidence' counts. Without one, a first line that is only a number counts, else the
    last number with a unit ('85%', '85/100', 'eighty-five percent').
    """
    text = plain(text)
    key = r"\bconfidence\b" if re.search(r"\bconfidence\b", text, re.IGNORECASE) else r"^\W*probability(?=\s*[:=])"
    parts = re.split(key, text, flags=re.IGNORECASE | re.MULTILINE)[1:]
    stated = [match for part in parts if (match := _after_key(part))]
    if not stated:
        alone = _PROBABILITY.fullmatch("".join(lines(text)[:1]).strip(" .!\"'()~"))
        stated = [alone] if alone else _with_unit(text)
    return probability(stated[-1]) if stated else None


def _after_key(part: str) -> re.Match | None:
    # "Confidence (0-100): 85" and "Confidence on a scale of 0 to 100: 85" name the scale before the value.
    part = re.sub(r"^(?:[^\n:\d(]|\([^)\n]*\)|\d+ ?(?:-|to|and) ?\d+)*:|^ [-\u2013](?= \d)", "", part)
    return _near_start(part)


def _near_start(text: str) -> re.Match | None:
    """The first probability of the first line, if at most a few words come before it."""
    line = text.strip().split("\n")[0]
    first = _PROBABILITY.search(line[:60])
    return first if first and first.start() <= 30 and not _NO_VALUE.search(line[: first.start()]) else None


def _with_unit(text: str) -> list[re.Match]:
    """Percentages and fractions of 100, without an option's own text ('A. 10%'). If the text contains the word
    'confidence', only '85% confidence' counts."""
    keyed = re.search(r"\bconfidence\b", text, re.IGNORECASE)
    return [
        match
        for match in _PROBABILITY.finditer(text)
        if (match["percent"] or match["scale"] == "100")
        and not re.search(r"(?:^|\s)\(?[A-Z][.):]\s*$", text[: match.start()])
        and (not keyed or re.match(r"\s*confidence", text[match.end() :], re.IGNORECASE))
    ]


# Answers with probabilities, for the prompting baselines


def guesses(text: str, k: int) -> list[tuple[str, float | None]]:
    """Up to `k` (answer text, probability in [0, 1] or None) of a Top-k reply 'G1: ... P1: ...', by number."""
    label = r"(?<!\w)(G|P|Guess|Prob(?:ability)?)[ ]?(\d+)\s*[:=]"
    pieces = re.split(label, plain(text), flags=re.IGNORECASE)
    answers, probabilities = {}, {}
    for kind, place, value in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        # The first list counts: some models repeat it.
        (answers if kind[0] in "Gg" else probabilities).setdefault(int(place), _unframed(value))
    return [_guess(answers[i], probabilities.get(i)) for i in sorted(answers) if 1 <= i <= k and answers[i]]


def _unframed(text: str) -> str:
    """The text without a bullet and separators around it; a number keeps its minus sign."""
    return re.sub(r"^(?:[\s,;]|-(?![\d.]))+|[\s,;-]+$", "", text)


def _guess(answer: str, stated: str | None) -> tuple[str, float | None]:
    answer = lines(answer)[0] if lines(answer) else answer
    # "Paris (70%)", but not "120 / 100 = 2.25%".
    inside = re.search(r"(?<=[^\s(,=])[\s(,]+\(?([\d.]+\s?%)\)?$", answer)
    if stated is None and inside:
        answer, stated = answer[: inside.start()], inside[1]
    match = _near_start(stated) if stated else None
    return answer, probability(match) if match else None


def answer_and_confidence(text: str) -> tuple[str | None, float | None]:
    """(answer text, confidence in [0, 1]) of a reply that ends 'Answer: ... Confidence: ...'; None for what is missing.

    Only a number labelled as confidence counts here, because the answer itself may be a percentage.
    """
    text = plain(text)
    joint = re.search(
        r"answer (?:and|&) confidence[^:\n]*:\s*(.+?)[,;]\s*(\S[^,;\n]*)$", text, re.IGNORECASE | re.MULTILINE
    )
    if joint:
        return joint[1].strip(), confidence(joint[2])
    value = confidence(text) if re.search(r"\bconfidence\b", text, re.IGNORECASE) else None
    return _before_confidence(text), value


def _before_confidence(text: str) -> str | None:
    head = re.split(r"[\s,;(]*\b(?:my |overall )?confidence\b", text, flags=re.IGNORECASE)
    for part in reversed(head):
        stated = statements(part)[:-1]
        if stated and lines(stated[0]):
            return lines(stated[0])[0]
    # Without a label: the line before the confidence, or the only line; never a line of reasoning.
    before = lines(head[0])
    marked = before and (len(head) > 1 or len(before) == 1)
    return before[-1] if marked and not re.match(r"explanation|step \d", before[-1], re.IGNORECASE) else None
