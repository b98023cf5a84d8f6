"""Reading what language models write: numbers, stated confidences, guesses. Used by tasks and methods.

Every parser takes free text and returns None (or an empty list) where the text does not state the value. A parser never
guesses: a misread answer would count as the model's own error, while an unreadable text is counted as unreadable.
"""

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from orce.text.marks import ascii_signs, lines, own_reply, plain, squeeze, statements

__all__ = [
    "answer_and_confidence", "ascii_signs", "confidence", "guesses", "lines", "number", "own_reply", "plain", "squeeze",
    "statements", "to_number",
]  # fmt: skip

# Numbers

_ONES = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
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
# Where a conclusion begins in a line.
_SO = re.compile(r"(?<=[.!?])\s+(?=(?:Therefore|Thus|Hence|So|In total)\b)|,\s+(?=so\b(?! that))")
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


def to_number(text: str) -> str | None:
    """'1,200', '- 5', '17.0', '$3' as canonical decimal text ('1200', '-5', '17', '3'); None if it is not a number.

    A comma separates thousands: '3,5' is not a number.
    """
    bare = re.sub(r"[$€£\s]", "", ascii_signs(text))
    if "," in bare and not re.fullmatch(rf"[-+]?{_DIGITS}", bare):
        return None
    try:
        value = Decimal(bare.replace(",", ""))
    except InvalidOperation:
        return None
    return format(value.normalize() if value else Decimal(0), "f") if value.is_finite() else None


def _from_words(text: str) -> str:
    """'eighty-five' as 85; words from zero to one hundred."""
    parts = [_VALUES[word] for word in re.split(r"[-\s]+", text.lower().strip()) if word != "a"]
    return str(100 if 100 in parts else sum(parts))


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
    results, marked = _results(whole) if conclusion else [], list[str]()
    for block in map(lines, stated):
        calculates = conclusion and not _LEADING.match(block[0] if block else "") and _results("\n".join(block[1:]))
        marked += block[::-1] if calculates else block
    written = lines(whole)
    bare = _unlisted(written)
    if conclusion and bare and (bare[0] != written[0] or not re.fullmatch(_ALONE, bare[0])):
        bare = [] if getattr(text, "cut", False) else bare[::-1]
    for line in [*marked, *bare]:
        concluded = _SO.split(line)[-1] if conclusion and not _LEADING.match(line) else line
        if value := _number_of_line(concluded, results):
            return value
    return None


def _results(text: str) -> list[str]:
    """The numbers on the right of '=', the last one first, without given ones ('cards = 52') before any calculation."""
    sides = _EQUALS.findall(text)
    first = next((i for i, (left, _) in enumerate(sides) if _CALCULATION.search(left)), len(sides))
    return [value for _, right in (sides[first:] or sides)[::-1] if (value := to_number(right))]


def _unlisted(text_lines: list[str]) -> list[str]:
    """Lines without 'Step 5:' and the numbers or dashes of a list of two or more: '5. Thus, it takes 3 bolts' is not 5."""
    text_lines = [re.sub(r"^Step \d+[:.]\s*", "", line) for line in text_lines]
    if sum(bool(re.match(r"[-*\u2022]\s+\S", line)) for line in text_lines) > 1:
        text_lines = [re.sub(r"^[-*\u2022]\s+", "", line) for line in text_lines]
    item = r"^(\d{1,2})[.)]\s+(?=\S)"
    numbers = {int(number) for line in text_lines for number in re.findall(item, line)}
    neighbours = {number + step for number in numbers for step in (-1, 1)}
    return [re.sub(item, lambda match: "" if int(match[1]) in neighbours else match[0], line) for line in text_lines]


def _number_of_line(line: str, results: Sequence[str]) -> str | None:
    """The number that a line states. Where a sentence has several, the last of `results` among them: 'she pays $64 for 16
    glasses' after '40 + 24 = 64'."""
    if re.fullmatch(rf"{_DIGITS}(?:{_OPERATION})+\s*=?", line):
        return None
    for sign in (r"=", r"\b(?:is|equals|makes|gives|to)\b"):
        for result in map(_LEADING.match, re.split(sign, line, flags=re.IGNORECASE)[:0:-1]):
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
    readings = [_numbers(_BESIDE.sub(" ", new)), _numbers(new), _numbers(line), hours]
    computed = (value for numbers in readings[:2] for value in results if value in numbers)
    return next(computed, None) or next((numbers[-1] for numbers in readings if numbers), None)


def _numbers(line: str) -> list[str]:
    return [value for value in map(to_number, re.findall(_NUMBER, line)) if value]


def _canonical(match: re.Match) -> str | None:
    return to_number(match[1]) if match[1] else _from_words(match[2])


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
_CONFIDENCE = re.compile(r"\bconfidence\b", re.IGNORECASE)


def _probability(match: re.Match) -> float | None:
    """The value in [0, 1] of a match of the pattern for stated probabilities, or None if it lies outside or is a range.

    A number with a decimal point and at most 1 is a probability ('0.85', '1.0'); every other number is a percentage.
    So the integer '1', stated on the scale from 0 to 100, is one percent and not certainty.
    """
    if match["sign"] or match["range"] or _NOT_ALONE.match(match.string, match.end()):
        return None
    stated = match["value"].replace(",", ".") if match["value"] else _from_words(match["words"])
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
    key = _CONFIDENCE if _CONFIDENCE.search(text) else re.compile(r"(?im)^\W*probability(?=\s*[:=])")
    # "Confidence (0-100): 85" and "Confidence on a scale of 0 to 100: 85" name the scale before the value.
    scale = r"^(?:[^\n:\d(]|\([^)\n]*\)|\d+ ?(?:-|to|and) ?\d+)*:|^ [-\u2013](?= \d)"
    stated = [match for rest in key.split(text)[1:] if (match := _near_start(re.sub(scale, "", rest)))]
    if not stated:
        alone = _PROBABILITY.fullmatch("".join(lines(text)[:1]).strip(" .!\"'()~"))
        stated = [alone] if alone else [match for match in _PROBABILITY.finditer(text) if _has_unit(match)]
    return _probability(stated[-1]) if stated else None


def _has_unit(match: re.Match) -> bool:
    """A percentage or a fraction of 100, and not an option's own text ('A. 10%'). In a text with the word 'confidence',
    only '85% confidence' counts."""
    if match["percent"] is None and match["scale"] != "100":
        return False
    before, after = match.string[: match.start()], match.string[match.end() :]
    keyed = not _CONFIDENCE.search(match.string) or re.match(r"\s*confidence", after, re.IGNORECASE)
    return bool(keyed) and not re.search(r"(?:^|\s)\(?[A-Z][.):]\s*$", before)


def _near_start(text: str) -> re.Match | None:
    """The first probability of the first line, if at most a few words come before it."""
    line = text.strip().split("\n")[0]
    first = _PROBABILITY.search(line[:60])
    return first if first and first.start() <= 30 and not _NO_VALUE.search(line[: first.start()]) else None


# Answers with probabilities, for the prompting baselines


def guesses(text: str, k: int) -> list[tuple[str, float | None]]:
    """Up to `k` (answer text, probability in [0, 1] or None) of a Top-k reply 'G1: ... P1: ...', by number."""
    label = r"(?<!\w)(G|P|Guess|Prob(?:ability)?)[ ]?(\d+)\s*[:=]"
    pieces = re.split(label, plain(text), flags=re.IGNORECASE)
    answers, probabilities = {}, {}
    for kind, rank, value in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        # The first list counts: some models repeat it.
        bare = re.sub(r"^(?:[\s,;]|-(?![\d.]))+|[\s,;-]+$", "", value)  # a bullet goes, a minus sign stays
        (answers if kind[0] in "Gg" else probabilities).setdefault(int(rank), bare)
    guessed = []
    for rank in sorted(answers):
        if 1 <= rank <= k and (answer := answers[rank]):
            answer, stated = next(iter(lines(answer)), answer), probabilities.get(rank)
            # "Paris (70%)", but not "120 / 100 = 2.25%".
            inside = re.search(r"(?<=[^\s(,=])[\s(,]+\(?([\d.]+\s?%)\)?$", answer)
            if stated is None and inside:
                answer, stated = answer[: inside.start()], inside[1]
            match = _near_start(stated) if stated else None
            guessed.append((answer, _probability(match) if match else None))
    return guessed


def answer_and_confidence(text: str) -> tuple[str | None, float | None]:
    """(answer text, confidence in [0, 1]) of a reply that ends 'Answer: ... Confidence: ...'; None for what is missing.

    Only a number labelled as confidence counts here, because the answer itself may be a percentage.
    """
    text = plain(text)
    joint = re.search(r"(?im)answer (?:and|&) confidence[^:\n]*:\s*(.+?)[,;]\s*(\S[^,;\n]*)$", text)
    if joint:
        return joint[1].strip(), confidence(joint[2])
    value = confidence(text) if _CONFIDENCE.search(text) else None
    head = re.split(r"(?i)(?<![\s,;(])[\s,;(]*\b(?:my |overall )?confidence\b", text)
    for section in reversed(head):
        marked = statements(section)[:-1]
        if marked and lines(marked[0]):
            return lines(marked[0])[0], value
    # Without a label: the line before the confidence, or the only line; never a line of reasoning.
    before = lines(head[0])
    ends = before and (len(head) > 1 or len(before) == 1) and not re.match(r"(?i)explanation|step \d", before[-1])
    return before[-1] if ends else None, value
