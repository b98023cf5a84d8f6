"""Reading what language models write: numbers, stated confidences, guesses. Used by tasks and methods.

Every parser takes free text and returns None (or an empty list) where the text does not state the value. A parser never
guesses: a misread answer would count as the model's own error, while an unreadable text is counted as unreadable.
"""

import re
import unicodedata
from decimal import Decimal
from itertools import pairwise
from math import gcd

from orce.text import compiled, table
from orce.text.marks import ascii_signs, lines, own_reply, plain, squeeze, statements

__all__ = [
    "answer_and_confidence", "ascii_signs", "confidence", "guesses", "lines", "number", "own_reply", "plain", "squeeze",
    "statements", "to_number",
]  # fmt: skip

# Numerals: `digits` writes every number in one form, before anything else reads the text

UNREAD = "\x04_"  # in place of a number that cannot be read whole
SPELLED = "\x05"  # before a number that was written in words
LONGEST = 100  # digits of a number
_VALUES, _SCALES, _PARTS, _SIGNS, _MAGNITUDES = (
    {row["word"]: int(row["value"]) for row in table("numbers") if row["kind"] == kind}
    for kind in ("small", "scale", "part", "sign", "magnitude")
)
_WORD = rf"(?:{'|'.join([*_VALUES, *_SCALES])})"
_SPOKEN = rf"(?:{_WORD}|an?(?=[ ](?:{'|'.join([*_SCALES, *_PARTS])})\b))(?:(?:[ -]|[ ]and[ ]){_WORD}){{0,20}}\b"
_SUPERSCRIPTS = "⁻?[⁰¹²³⁴-⁹]{1,3}"
_SPACED = r"\d{1,3}(?:[ ]\d{3})+(?:,\d+)?(?![\d-]|[.,:]\d)\b"
_NUMERAL = rf"(?i)(?<!\w)(?:(?P<written>{_SPACED}|\d(?:[\d.,'_:]*\d)?|(?<!\.)\.\d+)|(?P<spoken>{_SPOKEN})|(?P<vulgar>[¼-¾⅐-⅞]))"
# Thousands or lakhs, and the sign before decimals. "1.250" has decimals, since a point may begin them.
_GROUPED = (
    (r"[1-9]\d{0,2}(?:,\d{3})+", r"\."), (r"[1-9]\d?(?:,\d\d)*,\d{3}", r"\."), (r"[1-9]\d{0,2}(?:\.\d{3})+", ","),
    (r"[1-9]\d{0,2}(?:['_]\d{3})+", r"\."), (r"[1-9]\d{0,2}(?: \d{3})+", "[.,]"),
)  # fmt: skip
# What goes on with a number, and its value then; None where the whole is no number that can be read.
_CONTINUED = (
    # 2 1/2
    (r"[ ]?([¼-¾⅐-⅞])|[ ]([1-9]\d?/[1-9]\d{0,2})(?![\d/]|[ ]?[-+*×÷=])", lambda value, ratio: value + _ratio(ratio)),
    (r"[ ]and[ ]a[ ](half)\b", lambda value, _: value + Decimal("0.5")),
    (rf"[ ]point((?:[ ](?:{'|'.join([*_VALUES][:10])}))+)\b", lambda value, words: value + Decimal(f".{''.join(str(_VALUES[word]) for word in words.lower().split())}")),
    # two thirds, 2 thirds
    (rf"(?<=[a-z])[ -]({'|'.join(_PARTS)})s?(?![\w-])|[ ]({'|'.join([*_PARTS][1:])})s(?![\w-])",
     lambda value, fraction: value / _PARTS[fraction.lower()]),
    (rf"e([-+]?\d+)(?!\w)|[ ]?[x*×·⋅][ ]?10(?:[ ]?\^[ {{(]*([-+]?\d{{1,2}})[}})]*|({_SUPERSCRIPTS}))(?!\d)",
     # 1.2e3, 1.2 * 10^3
     lambda value, power: value.scaleb(int(power)) if len(power) < 4 else None),
    (rf"[ ]?\^[ {{(]*(-?\d{{1,3}})[}})]*(?!\.?\d)|({_SUPERSCRIPTS})", lambda value, power: value ** int(power) if len(power) < 3 and value else None),
    *[(rf"(?-i:([{''.join(_SIGNS)}]))(?![A-Za-z\d])|[ -]?({'|'.join(_MAGNITUDES)})s?(?![^\W\d_])",
       # 2.5M, a hundred thousand
       lambda value, word: value * (_SIGNS.get(word) or _MAGNITUDES[word.lower()]))] * 2,
    # 3π, 3x, 5 ± 1, 0.(3), three quarters, 5 below zero, 3 out of 5, 2 million 500: another number than the one before.
    ((r"""[ ]?[*×·]?[ ]?(?:√|π|\\?(?:sqrt|pi)\b)|(?-i:[xyznie])(?!\w)|[ ]?\^|<sup>\d|[ ]?(?:±|\+/-)|\.?\\overline|\.\(\d|[ ](?-i:[MB])(?=[\s.,;)]|\Z)"""
     r"""|[ ](?:hundred|thousand)ths?\b|(?<=[a-z])[ -]quarters?\b|[ ](?:degrees?[ ])?(?:[CF][ ])?below[ ](?:zero|0)|[ ]out[ ]of[ ]\d|(?<=[a-z])[ ]\d"""),
     lambda value, _: None),
)  # fmt: skip
_NOT_AFTER = r"(?:√|sqrt|log|ln|sin|cos|tan|±|\+/-)[ ]?[({]*\Z"
_NEGATIVE = (
    r"(?i)(?:((?:^|[:=(\"'\n]|\b(?:is|was|equals|be|of|at|about))\s*)minus|\bnegative)[ ]+\Z"
)
_UNITS = (("years?|months?|weeks?|days?|hours?|hrs?|h|minutes?|mins?", "months?|weeks?|days?|hours?|minutes?|mins?|min|m|seconds?|secs?|s"),
          ("feet|foot|ft", "inch(?:es)?|in"), ("pounds?|lbs?", "ounces?|oz|pence"), ("dollars?|euros?|", "cents?"), ("m|metres?|meters?", "cm"), ("kg", "g"))  # fmt: skip
_D = r"\d++(?:\.\d++)?+"
_COMPOUND = "|".join(
    rf"(?<![\w.]){_D}\s?(?:{large})\.?,?\s*(?:and\s+)?{_D}\s?(?:{small})\b"
    for large, small in _UNITS
)
# Rewritten before and after the numbers of a text are: what LaTeX writes, and alternatives, ranges and sums of units.
_MONEY = r"USD|EUR|GBP|CHF|JPY|INR|AUD|CAD|CNY|RMB|Rs\.?"
_LATEX = (
    # "£3m", "5m USD", "3 mil": millions, metres or a thousandth of an inch
    (rf"(?:\\?\$|[€£¥₠-⃀]|\b(?:{_MONEY}))\s?\d[\d.,]*+\s?(?:MM|mm?|mill?|mln|bl?|tn?|cr)\b", UNREAD),
    (rf"(?<![\w.,])\d[\d.,]*+\s?(?:(?:mill?|mln|tn)\b|(?:mm?|b)\s(?:{_MONEY}|dollars?|euros?|pounds?)\b)", UNREAD),
    (r"\{,\}", ","), (r"\\[,;: ]|~", " "), (r"(?<=\d) : (?=\d)", ":"), (r"\\(?:times|cdot)\b", "×"), (r"\\div\b", "÷"), (r"\\sqrt\b", "√"), (r"\\pi\b", "π"), (r"\\pm\b", "±"),
    (r"\\[dt]?frac\s?(?:\{(\d+)\}\s?\{(\d+)\}|(\d)(\d))", r" \1\3/\2\4"), (r"\\[dt]?frac\b", UNREAD),
    (r"(= ?\d+) ?[-+*/x×÷]\Z", r"\1"), (r"((?<![^\s(=:])-)?(?:\\?\$|[€£¥₠-⃀])", r" \1"), (r"(?<=[^\W\d_])\^[{(]?-?\d+[)}]?", ""),
)  # fmt: skip
_RANGE = rf"\bbetween\s+\x05?{_D}\s+and\s+\x05?{_D}|(?<![\w.])(?<!from )(?<!from  )\x05?{_D}([ ]?%)?\s+(?:to|or)\s+\x05?-?{_D}(?(1)|(?![ ]?%))"
_UNDECIDED = f"(?i){_RANGE}|{_COMPOUND}"


def _ascii(written: str) -> str:
    return unicodedata.normalize("NFKC", written).translate({0x2044: "/", 0x2212: "-"})


def _ratio(written: str) -> Decimal:
    above, below = _ascii(written).split("/")
    return Decimal(above) / Decimal(below)


def _spoken(words: str) -> Decimal | None:
    """'two thousand five hundred' as 2500; None for words that are several numbers ('two and three', 'nineteen eighty')."""
    whole, group, least = 0, 0, 10**15
    for word in re.split(r"[- ]+", words.lower()):
        value, scale = _VALUES.get(word, 0), _SCALES.get(word, 1)
        if value:
            if group % (10 if value < 10 else 100) or (value < 10 and group % 100 == 10):
                return None
            group += value
        elif scale in (12, 100):
            group = (group or 1) * scale
        elif scale >= least:
            return None
        elif scale > 1:
            whole, group, least = whole + (group or 1) * scale, 0, scale
    return Decimal(whole + group or int(words.lower() in ("a", "an")))


def _written(numeral: str, comma: bool) -> Decimal | None:
    """The value of digits and their separators; a comma that cannot group them separates decimals, if `comma`."""
    if re.fullmatch(r"\d+|\d*\.\d+", numeral):
        return Decimal(numeral)
    for whole, point in _GROUPED:
        if grouped := re.fullmatch(rf"({whole})(?:{point}(\d+))?", numeral):
            return Decimal(re.sub(r"\D", "", grouped[1]) + f".{grouped[2] or 0}")
    return (
        Decimal(numeral.replace(",", ".")) if comma and re.fullmatch(r"\d+,\d+", numeral) else None
    )


def _canonical(value: Decimal) -> str:
    return format(value.normalize() if value else Decimal(0), "f")


def _whole(match: re.Match, comma: bool) -> tuple[str, int]:
    """A number in digits, or UNREAD, and where it ends."""
    text, end, value = match.string, match.end(), None
    if match["written"] and re.fullmatch(r"\d\d?(?::\d\d)+", match[0]):
        return match[0], end  # a time of day
    if end - match.start() <= LONGEST:
        read = (
            _spoken(match[0]) if match["spoken"] else _ratio(match[0]) if match["vulgar"] else None
        )
        value = _written(match[0], comma) if match["written"] else read
    for continuation, change in _CONTINUED:
        if value is not None and (more := compiled(continuation, re.IGNORECASE).match(text, end)):
            value, end = change(value, _ascii(next(filter(None, more.groups()), ""))), more.end()
    before, after = text[max(0, match.start() - 8) : match.start()], text[end : end + 1]
    pair = "," in match[0] and before.endswith("(") and after == ")"
    unread = value is None or pair or after.isdecimal() or compiled(_NOT_AFTER).search(before)
    made = UNREAD if unread or len(_canonical(value)) > LONGEST else _canonical(value)
    return made if match["written"] else SPELLED + made, end


def digits(text: str, comma: bool = True) -> str:
    """The text with each number as a decimal: '1,00,000' as 100000, '2 1/2' as 2.5, 'two million' as 2000000.

    UNREAD stands for one that cannot be read whole, a range among them; SPELLED comes before one in words.
    """
    for latex, new in _LATEX:
        text = compiled(latex).sub(new, text)
    if not text.isascii():
        text = re.sub(r"(?![0-9])\d", lambda digit: str(unicodedata.digit(digit[0])), text)
    made, end = [], 0
    for match in compiled(_NUMERAL).finditer(text):
        if match.start() >= end:
            before = text[end : match.start()]
            signed = compiled(_NEGATIVE).search(before, max(0, len(before) - 30))
            value, end = _whole(match, comma)
            made += [f"{before[: signed.start()]}{signed[1] or ''}-" if signed else before, value]
    return compiled(_UNDECIDED).sub(
        UNREAD, "".join([*made, text[end:]]).replace("-" + SPELLED, SPELLED + "-")
    )


def to_number(text: str) -> str | None:
    """'1,200', '- 5', '17.0', '$3' as canonical decimal text ('1200', '-5', '17', '3'); None if it is not a number.

    A comma separates thousands: '3,5' is not a number.
    """
    written = re.fullmatch(rf"\s*+([-+]?)\s*+({_D})\s*+", digits(ascii_signs(text), comma=False))
    return _canonical(Decimal(written[1] + written[2])) if written else None


# Numbers that a text gives as its answer, after `digits`

_OPERATION = rf"\s*+(?:[-+*/x×÷]|plus|minus|times|divided by)\s*+(?:{_D}|{UNREAD})"
# The number that begins a text, if it is more than the first part of an expression, of alternatives or of a time of day.
_LEADING = rf"(?i)[\s:(\"'~≈]*+\x05?(-?[ ]{{0,2}}{_D}|{UNREAD})(?!\.?\d|:\d)(?!{_OPERATION})"
_FRACTION = r"[\s:(\"']*+(-?) ?((\d+)/(\d+))(?: (?!of\b)[^\W\d_]+){0,2}[\s.)\"']*\Z"
_LISTED = r"(?:[,;&]|\s+and\s)\s*[-\x05]*\d"  # "2, 3" is none of the two
# Where a conclusion begins in a line.
_SO = r"(?<=[.!?])\s+(?=(?:Therefore|Thus|Hence|So|In total)\b)|,\s+(?=so\b(?! that))"
# "$5 each, so $15 in total" begins with another number than it concludes with.
_RATE = rf"(?i)[\s:(\"'~≈]*+\x05?{_D}\s+(?:[^\W\d]+\s+)?(?:each|apiece|per|for\s+{_D})\b"
_RESULT = rf"\s*(-? ?{_D})(?!\.?\d|{_OPERATION})"
_TIME = r"\b\d\d?:\d\d\b"
_NUMBER = rf"(?<![\w.\x05])(?<![\d)]\s)-?{_D}|(?<![\w.\x05]){_D}|(?<!\x05){UNREAD}"
# What a sentence says beside its answer, surely: 'needs 9 shelves for the 27 books (4 more)'; and probably: '$18 for 3 weeks'.
_GIVEN = rf"(?i)\([^()]*\)|\b(?:so that|in order to|because|since)\b.*$|\b(?:the|all|remaining|other|each|every)\s+{_D}"
_BESIDE = rf"(?i)\b(?:after|for|from|in|(?<!total )of|per|with)\s+(?:an?\s+)?{_D}"
# A line that is a number and nothing else but a unit or a sign of currency.
_ALONE = rf"[\s=\"'(]*-?[ ]?{_D}(?:[\s%.)\"']*|[ ]?[^\W\d]+[.]?)"


@own_reply
def number(text: str, conclusion: bool = False) -> str | None:
    """The number that a text gives as its answer, as canonical decimal text, or None.

    The last marked answer (orce.text.marks) that contains a number counts. Without one, the first line that is more than
    an expression counts: its number after '=', else after 'is' or 'equals', else the number it begins with, else its
    last number. conclusion: the text may reason first, so without a mark its last line with a number counts in place of
    the first one, unless the first is a number alone; a text that was cut off at its token budget has no last line. So
    does what follows a mark, if it calculates in place of beginning with a number.
    """
    *stated, whole = statements(digits(plain(text)))
    results, marked = _results(whole) if conclusion else [], list[str]()
    for block in map(lines, stated):
        calculates = (
            conclusion and _lead("".join(block[:1])) is None and _results("\n".join(block[1:]))
        )
        marked += block[::-1] if calculates else block
    written = lines(whole)
    bare = _unlisted(written)
    if conclusion and bare and (bare[0] != written[0] or not re.fullmatch(_ALONE, bare[0])):
        bare = [] if getattr(text, "cut", False) else bare[::-1]
    ranks = {value: rank for rank, value in reversed([*enumerate(results)])}
    for line in [*marked, *bare]:
        if re.search(r"[\d\x04]", line):
            if conclusion and compiled(_RATE).match(line) and compiled(_SO).search(line):
                return None
            said = compiled(_SO).split(line)[-1] if conclusion and _lead(line) is None else line
            value = _number_of_line(said, results, ranks)
            if value is not None:
                return to_number(value)
    return None


def _results(text: str) -> list[str]:
    """The numbers on the right of '=', the last one first, without given ones ('cards = 52') before any calculation."""
    sides = [
        (left.rsplit("\n", 1)[-1], compiled(_RESULT).match(right))
        for left, right in pairwise(text.split("="))
    ]
    sides = [
        (re.split(r"\d+", left)[1:-1], result[1].replace(" ", ""))
        for left, result in sides
        if result
    ]
    calculated = (i for i, (signs, _) in enumerate(sides) if re.search("[-+*/x×÷]", "".join(signs)))
    return [value for _, value in sides[next(calculated, 0) :][::-1]]


def _unlisted(text_lines: list[str]) -> list[str]:
    """Lines without 'Step 5:' and the numbers or dashes of a list of two or more: '5. Thus, it takes 3 bolts' is not 5."""
    text_lines = [re.sub(r"^Step \d+[:.]\s*", "", line) for line in text_lines]
    if sum(bool(re.match(r"[-*\u2022]\s+\S", line)) for line in text_lines) > 1:
        text_lines = [re.sub(r"^[-*\u2022]\s+", "", line) for line in text_lines]
    item = r"^(\d{1,2})[.)]\s+(?=\S)"
    numbers = {int(number) for line in text_lines for number in re.findall(item, line)}
    neighbours = {number + step for number in numbers for step in (-1, 1)}
    return [
        re.sub(item, lambda match: "" if int(match[1]) in neighbours else match[0], line)
        for line in text_lines
    ]


def _lead(text: str) -> str | None:
    """The number that begins a text; '' for one that cannot be read, None for a text that does not begin with a number."""
    ratio, leading = compiled(_FRACTION).match(text), compiled(_LEADING).match(text)
    if (
        ratio
        and len(ratio[0]) <= LONGEST
        and gcd(int(ratio[3]), int(ratio[4])) == 1
        and int(ratio[4])
    ):
        return ratio[1] + _canonical(_ratio(ratio[2]))  # 36/2 is an expression
    if leading:
        return (
            ""
            if leading[1] == UNREAD or compiled(_LISTED).match(text, leading.end())
            else leading[1].replace(" ", "")
        )
    return None


def _number_of_line(line: str, results: list[str], ranks: dict[str, int]) -> str | None:
    """The number that a line states; '' for one that cannot be read. Where a sentence has several, the first of `results`
    among them: 'she pays $64 for 16 glasses' after '40 + 24 = 64'. ranks: the first place of each in `results`."""
    if not compiled(_FRACTION).match(line) and re.fullmatch(rf"{_D}(?:{_OPERATION})+\s*=?", line):
        return None
    for sign in (r"=", r"\b(?:is|equals|makes|gives|to)\b"):
        for stated in map(_lead, re.split(sign, line, flags=re.IGNORECASE)[:0:-1]):
            if stated is not None:
                return stated
    # "4 + 0 = undefined" and "1 is not a number" contain numbers but give none as the result.
    if re.search(
        r"=\s*[^\s\d]|\b(?:(?:is|are|was|were|do|does|did|can|could) ?not|not an?|undefined)\b",
        line,
    ):
        return None
    leading = _lead(line)
    if leading is not None and not (results and results[0] in _numbers(line)):
        return leading
    # Nor does "65 * 2 = 13*2".
    if re.search(rf"=\s*{_D}(?:{_OPERATION})+[\s=.]*$", line):
        return None
    # Nor do '36/2', '2:30'; '2:00' alone is 2.
    hours = (
        []
        if (bare := compiled(_TIME).sub("", line)) and _numbers(bare)
        else re.findall(r"\b(\d\d?):00\b", line)
    )
    line = re.sub(rf"(?<!\d){_D}(?:{_OPERATION})+", "", bare)
    new = compiled(_GIVEN).sub(" ", line)
    readings = [_numbers(compiled(_BESIDE).sub(" ", new)), _numbers(new), _numbers(line), hours]
    for numbers in readings[:2]:
        if computed := [ranks[value] for value in numbers if value in ranks]:
            return results[min(computed)]
    return next((numbers[-1] for numbers in readings if numbers), None)


def _numbers(line: str) -> list[str]:
    return ["" if value == UNREAD else value for value in compiled(_NUMBER).findall(line)]


# Confidences

_PROBABILITY = rf"""(?ix)(?<![\w.,])(?<![\d.]e[-+])(?P<sign>-[ ]?)?
    (?:(?P<value>0,\d+|\d\d?,\d+(?=[ ]?%)|\d+(?:\.\d+)?|\.\d+)
      |(?P<words>{_SPOKEN})(?=[ ]?(?:%|per[ ]?cent|out[ ]of|[.,;)!\n]|$)))
    (?P<range>[ ]?%?[ ]?(?:-|\u2013|to[ ])[ ]?\d+)?
    (?:[ ]?(?P<percent>%|per[ ]?cent\b)|[ ]?(?:/|out[ ]of)[ ]?(?P<scale>\d+))?
    (?!\w|[.,]\d)"""
# After one of these words or signs, a number that follows 'Confidence:' is not the confidence: it belongs to a repeated
# scale, to another field, to the explanation of a placeholder ('N, where N is 0'), to a negation or to a bound.
_NO_VALUE = r"(?i)\b(?:answer|between|from|integer|number|question|option|step|where|not|least|most|more|less|over|under|above|below|up|point)\b|n't\b|[<>≤≥]"
# Nor is a number with one of these after it: alternatives ('80 or 90'), an error ('85 \u00b1 5'), odds ('3:1', '1 in 3'), an angle,
# the scale ('3 (1-5)').
_NOT_ALONE = r"(?i)\s*%?\s*(?:(?:or|,|±|\+/-|:|in)\s*\d|°|\(\d+\s*(?:-|\u2013|to)\s*\d)"
# Nor one without a unit before another scale than to 100 ('nine out of ten', '4 of 5'), a share, a power or the scale's ends.
_OF_ANOTHER = r"""(?ix)\s*\(?\s*(?:out\s+of\s+(?!(?:100|(?:a|one)\s+hundred)\b)\w|(?:of|on)\s+(?!100\b)\d|stars?\b|(?:ten|fif|four)ths?\b
    |thirds?\b|quarters?\b|halves\b|[x×*·]\s?10\b|\d+\s?=|max)"""
# A text that rates 'on a scale of 1 to 5', '1-10 scale' or 'on a 7-point scale' has no number of 100.
_TO = r"\s*(?:-|\u2013|to|and|through)\s*"
_RATED = rf"""(?ix)\bscale\s+(?:of|from)\s+(?:\d+|{_WORD}){_TO}(?!1(?:00)?\b|(?:a|one)\ hundred)(?:\d|{_WORD}\b)
    |\b\d+{_TO}(?!1(?:00)?\b)\d+\s+scale\b|\b(?:(?!100\b)\d+|{_WORD})[- ]point\s+(?:\w+\s+)?scale\b"""
_OTHER_SCALE = (
    r"[^\n:\d]*\d+ ?(?:-|to|and) ?(?!1(?:00)?\b)\d+\b[^\n\d]*:"  # "(1 to 10): 8" is not a percent
)
_CONFIDENCE = r"(?i)\bconfidence\b"


def _probability(match: re.Match) -> float | None:
    """The value in [0, 1] of a match of the pattern for stated probabilities, or None if it lies outside or is a range.

    A number with a decimal point and at most 1 is a probability ('0.85', '1.0'); every other number is a percentage.
    So the integer '1', stated on the scale from 0 to 100, is one percent and not certainty.
    """
    if match["sign"] or match["range"] or compiled(_NOT_ALONE).match(match.string, match.end()):
        return None
    bare = match["percent"] is None and match["scale"] is None
    if bare and compiled(_OF_ANOTHER).match(match.string, match.end()):
        return None
    written = (match["value"] or "").replace(",", ".")
    value = Decimal(written) if written else _spoken(match["words"])
    if value is None:  # fifty-fifty
        return None
    if match["scale"]:
        scale = Decimal(match["scale"])
        odds = scale != 100 and value + scale == 100  # "50/50"
        value = value / scale if scale and not odds else Decimal(2)
    elif match["percent"] or "." not in written or value > 1:
        value = value / 100
    return float(value) if value <= 1 else None


@own_reply
def confidence(text: str) -> float | None:
    """The confidence in [0, 1] that a text states, or None.

    The last value after the word 'confidence' counts. Without one, a first line that is only a number counts, else the
    last number with a unit ('85%', '85/100', 'eighty-five percent').
    """
    text = re.sub(r"(?i)<(confidence|probability)>", r"\1: ", plain(text))
    named = compiled(_CONFIDENCE).search(text) is not None
    key = compiled(_CONFIDENCE if named else r"(?im)^[^\w\n]*probability(?=\s*[:=])")
    # "Confidence (0-100): 85" and "Confidence on a scale of 0 to 100: 85" name the scale before the value.
    scale = r"^(?:[^\n:\d(]|\([^)\n]*+\)|\d++ ?(?:-|to|and) ?\d++)*+:|^ [-\u2013](?= \d)"
    read = [(rest, _near_start(re.sub(scale, "", rest))) for rest in key.split(text)[1:]]
    rated = compiled(_RATED).search(text)
    stated = [
        at
        for rest, at in read
        if at
        and (at["percent"] or at["scale"] or not (rated or compiled(_OTHER_SCALE).match(rest)))
    ]
    if not stated:
        alone = compiled(_PROBABILITY).fullmatch("".join(lines(text)[:1]).strip(" .!\"'()~"))
        stated = (
            [alone]
            if alone
            else [
                match for match in compiled(_PROBABILITY).finditer(text) if _has_unit(match, named)
            ]
        )
    return _probability(stated[-1]) if stated else None


def _has_unit(match: re.Match, named: bool) -> bool:
    """A percentage or a fraction of 100, and not an option's own text ('A. 10%'). In a text with the word 'confidence',
    only '85% confidence' counts."""
    if match["percent"] is None and match["scale"] != "100":
        return False
    text, start, end = match.string, match.start(), match.end()
    before, after = text[max(0, start - 9) : start], text[end : end + 20]
    keyed = not named or re.match(r"\s*confidence", after, re.IGNORECASE)
    return bool(keyed) and not re.search(r"(?:^|\s)\(?[A-Z][.):]\s*$", before)


def _near_start(text: str) -> re.Match | None:
    """The first probability of the first line, if at most a few words come before it."""
    line = text.strip().split("\n")[0]
    first = compiled(_PROBABILITY).search(line[:60])
    if first is None or first.start() > 30:
        return None
    before = line[: first.start()]
    # "nine in ten": a number stands before it that is none of these
    bare = first["percent"] is None and first["scale"] is None
    other = bare and compiled(_NUMERAL).search(before)
    return None if other or compiled(_NO_VALUE).search(before) else first


# Answers with probabilities, for the prompting baselines


@own_reply
def guesses(text: str, k: int) -> list[tuple[str, float | None]]:
    """Up to `k` (answer text, probability in [0, 1] or None) of a Top-k reply 'G1: ... P1: ...', by number."""
    label = r"(?<!\w)(G|P|Guess|Prob(?:ability)?)[ ]?(\d{1,3})[\"']?\s*[:=]"
    pieces = re.split(label, plain(text), flags=re.IGNORECASE)
    answers, probabilities = {}, {}
    for kind, rank, value in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        # The first list counts: some models repeat it.
        # a minus sign stays
        bare = re.sub(r"^(?:[\s,;\"']|-(?![\d.]))+", "", value).rstrip(" \t\r\n,;-([\"'")
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


@own_reply
def answer_and_confidence(text: str) -> tuple[str | None, float | None]:
    """(answer text, confidence in [0, 1]) of a reply that ends 'Answer: ... Confidence: ...'; None for what is missing.

    Only a number labelled as confidence counts here, because the answer itself may be a percentage.
    """
    text = plain(text)
    joint = re.search(
        r"(?im)answer (?:and|&) confidence[^:\n]{0,40}:\s*(.{1,200}?)[,;]\s*(\S[^,;\n]{0,80})$",
        text,
    )
    if joint:
        return joint[1].strip(), confidence(joint[2])
    value = confidence(text) if compiled(_CONFIDENCE).search(text) else None
    head = re.split(r"(?i)(?<![\s,;(])[\s,;(]*\b(?:my |overall )?confidence\b", text)
    for section in reversed(head):
        marked = statements(section)[:-1]
        if marked and lines(marked[0]):
            return lines(marked[0])[0], value
    # Without a label: the line before the confidence, or the only line; never a line of reasoning.
    before = lines(head[0])
    ends = (
        before
        and (len(head) > 1 or len(before) == 1)
        and not re.match(r"(?i)explanation|step \d", before[-1])
    )
    return before[-1] if ends else None, value
