"""The number that a text gives as its answer, in digits or in words."""

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from orce.text.marks import ascii_signs, lines, own_reply, plain, statements

# fmt: off
_ONES = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]
# fmt: on
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_VALUES = dict(zip([*_ONES, *_TENS, "hundred"], [*range(20), *range(20, 101, 10)], strict=True))
_UP_TO_99 = rf"(?:{'|'.join(_TENS)})(?:[- ](?:{'|'.join(_ONES[1:10])}))?|{'|'.join(_ONES[::-1])}"
IN_WORDS = rf"(?:(?:(?:one|a)[ ])?hundred|{_UP_TO_99})"
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|\d+(?:\.\d+)?|\.\d+)"
_OPERATION = rf"\s*(?:[-+*/x×÷]|plus|minus|times|divided by)\s*{_DIGITS}"

# The number that begins a text, if it is more than the first part of an expression, of alternatives or of a time of day.
_LEADING = re.compile(
    rf"[\s:(\"'$]*(?:(-?[ $]?{_DIGITS})(?!\.?\d|:\d|\s+or\s+[$]?\d|e[-+]?\d|\^)|({IN_WORDS})\b)(?!{_OPERATION})",
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
