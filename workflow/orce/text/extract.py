"""Reading what language models write: numbers, stated confidences, guesses. Used by tasks and methods.

The forms are rows of rules.csv, each with an example and what is read there. A parser takes free text and returns None
(or an empty list) where the text does not state the value. It never guesses: a misread answer would count as the model's
own error, while an unreadable text is counted as unreadable.
"""

import re
import unicodedata
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from itertools import pairwise
from math import gcd

from orce.text import Read, compiled, either, rules, table
from orce.text.marks import ascii_signs, lines, own_reply, plain, squeeze, statements

__all__ = [
    "answer_and_confidence", "ascii_signs", "confidence", "guesses", "lines", "number", "own_reply", "plain", "squeeze",
    "statements", "to_number",
]  # fmt: skip

# Numerals: `digits` writes every number in one form, before anything else reads the text

UNREAD = "\x04_"  # in place of a number that cannot be read whole
SPELLED = "\x05"  # before a number that was written in words
LONGEST = 100  # digits of a number
_NUMBERS = table("numbers")
_VALUES, _SCALES, _PARTS, _SIGNS, _MAGNITUDES = (
    {row["word"]: int(row["value"]) for row in _NUMBERS if row["kind"] == kind}
    for kind in ("small", "scale", "part", "sign", "magnitude")
)
_WORD = rf"(?:{'|'.join([*_VALUES, *_SCALES])})"
_ARTICLE = rf"an?(?=[ ](?:{'|'.join([*_SCALES, *_PARTS])})\b)"
_SPOKEN = rf"(?:{_WORD}|{_ARTICLE})(?:(?:[ -]|[ ]and[ ]){_WORD}){{0,20}}\b"
_SPACED = r"\d{1,3}(?:[ ]\d{3})+(?:,\d+)?(?![\d-]|[.,:]\d)\b"
_WRITTEN = rf"{_SPACED}|\d(?:[\d.,'_:]*\d)?|(?<!\.)\.\d+"
_NUMERAL = rf"(?i)(?<!\w)(?:(?P<written>{_WRITTEN})|(?P<spoken>{_SPOKEN})|(?P<vulgar>[¼-¾⅐-⅞]))"
_D = r"\d++(?:\.\d++)?+"
_OPERATION = rf"\s*+(?:[-+*/x×÷]|plus|minus|times|divided by)\s*+(?:{_D}|{UNREAD})"
# The rows of each kind, in the order in which they are tried:
# rewriting, continued, spoilt, undecided   in `digits`: before the numbers of a text, with what goes on after one, after all
# after, none, form                 in `_number_of_line`
# bound, beside, scaled, rated      what makes a number no confidence: words and signs before it, alternatives and errors
#                                   beside it, and, where it has no unit, another scale than to 100
RULES = rules(
    number=_D,
    unread=UNREAD,
    operation=_OPERATION,
    word=_WORD,
    digit="|".join([*_VALUES][:10]),
    part="|".join(_PARTS),
    **{"part of digits": "|".join([*_PARTS][1:])},
    sign="".join(_SIGNS),
    magnitude="|".join(_MAGNITUDES),
    superscripts="⁻?[⁰¹²³⁴-⁹]{1,3}",
    money=r"USD|EUR|GBP|CHF|JPY|INR|AUD|CAD|CNY|RMB|Rs\.?",
    to=r"\s*(?:-|\u2013|to|and|through)\s*",
)
# Thousands or lakhs, and the sign before decimals. "1.250" has decimals, since a point may begin them.
_GROUPED = (
    (r"[1-9]\d{0,2}(?:,\d{3})+", r"\."),
    (r"[1-9]\d?(?:,\d\d)*,\d{3}", r"\."),
    (r"[1-9]\d{0,2}(?:\.\d{3})+", ","),
    (r"[1-9]\d{0,2}(?:['_]\d{3})+", r"\."),
    (r"[1-9]\d{0,2}(?: \d{3})+", "[.,]"),
)


def _with_digits(value: Decimal, words: str) -> Decimal:
    return value + Decimal(f".{''.join(str(_VALUES[word]) for word in words.lower().split())}")


def _times_ten(value: Decimal, power: str) -> Decimal | None:
    return value.scaleb(int(power)) if len(power) < 4 else None


def _raised(value: Decimal, power: str) -> Decimal | None:
    return value ** int(power) if len(power) < 3 and value else None


def _magnified(value: Decimal, word: str) -> Decimal:
    return value * (_SIGNS.get(word) or _MAGNITUDES[word.lower()])


# The value of a number with what goes on with it, by the row's name. What a row of "spoilt" goes on with makes the whole no
# number that can be read: 3π, 3x, 5 ± 1.
_CHANGES: dict[str, Callable[[Decimal, str], Decimal | None]] = {
    "and a fraction": lambda value, ratio: value + _ratio(ratio),
    "and a half": lambda value, _: value + Decimal("0.5"),
    "point and digits in words": _with_digits,
    "parts": lambda value, part: value / _PARTS[part.lower()],
    "power of ten": _times_ten,
    "power": _raised,
    "magnitude": _magnified,
    "magnitude of a magnitude": _magnified,
}
_NOT_AFTER = r"(?:√|sqrt|log|ln|sin|cos|tan|±|\+/-)[ ]?[({]*\Z"
_NEGATIVE = (
    r"(?i)(?:((?:^|[:=(\"'\n]|\b(?:is|was|equals|be|of|at|about))\s*)minus|\bnegative)[ ]+\Z"
)


@cache
def any_of(kind: str) -> re.Pattern:
    """Matches where one of the rows of a kind does."""
    return compiled(either(RULES[kind]), re.IGNORECASE)


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
    for row in RULES["continued"]:
        if value is None:
            break
        if more := compiled(row.pattern, re.IGNORECASE).match(text, end):
            value = _CHANGES[row.name](value, _ascii(next(filter(None, more.groups()), "")))
            end = more.end()
    if value is not None and (spoilt := any_of("spoilt").match(text, end)):
        value = None
        end = spoilt.end()
    before, after = text[max(0, match.start() - 8) : match.start()], text[end : end + 1]
    pair = "," in match[0] and before.endswith("(") and after == ")"
    unread = value is None or pair or after.isdecimal() or compiled(_NOT_AFTER).search(before)
    made = UNREAD if unread or len(_canonical(value)) > LONGEST else _canonical(value)
    return made if match["written"] else SPELLED + made, end


def digits(text: str, comma: bool = True) -> str:
    """The text with each number as a decimal: '1,00,000' as 100000, '2 1/2' as 2.5, 'two million' as 2000000.

    UNREAD stands for one that cannot be read whole, a range among them; SPELLED comes before one in words.
    """
    for row in RULES["rewriting"]:
        text = compiled(row.pattern).sub(row.new, text)
    if not text.isascii():
        text = re.sub(r"(?![0-9])\d", lambda digit: str(unicodedata.digit(digit[0])), text)
    made, end = [], 0
    for match in compiled(_NUMERAL).finditer(text):
        if match.start() >= end:
            before = text[end : match.start()]
            signed = compiled(_NEGATIVE).search(before, max(0, len(before) - 30))
            value, end = _whole(match, comma)
            made += [f"{before[: signed.start()]}{signed[1] or ''}-" if signed else before, value]
    return any_of("undecided").sub(
        UNREAD, "".join([*made, text[end:]]).replace("-" + SPELLED, SPELLED + "-")
    )


def to_number(text: str) -> str | None:
    """'1,200', '- 5', '17.0', '$3' as canonical decimal text ('1200', '-5', '17', '3'); None if it is not a number.

    A comma separates thousands: '3,5' is not a number.
    """
    written = re.fullmatch(rf"\s*+([-+]?)\s*+({_D})\s*+", digits(ascii_signs(text), comma=False))
    return _canonical(Decimal(written[1] + written[2])) if written else None


# Numbers that a text gives as its answer, after `digits`

_FORMS = {row.name: row for row in RULES["form"]}
_LISTED = r"(?:[,;&]|\s+and\s)\s*[-\x05]*\d"  # "2, 3" is none of the two
# Where a conclusion begins in a line.
_SO = r"(?<=[.!?])\s+(?=(?:Therefore|Thus|Hence|So|In total)\b)|,\s+(?=so\b(?! that))"
# "$5 each, so $15 in total" begins with another number than it concludes with.
_RATE = rf"(?i)[\s:(\"'~≈]*+\x05?{_D}\s+(?:[^\W\d]+\s+)?(?:each|apiece|per|for\s+{_D})\b"
_TIME = r"\b\d\d?:\d\d\b"
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
    results = _results(whole) if conclusion else []
    marked: list[tuple[str, str]] = []  # lines with the names of their marks
    for statement in stated:
        block = lines(statement)
        calculates = (
            conclusion and _lead("".join(block[:1])) is None and _results("\n".join(block[1:]))
        )
        marked += [(line, statement.by) for line in (block[::-1] if calculates else block)]
    written = lines(whole)
    bare = _unlisted(written)
    if conclusion and bare and (bare[0] != written[0] or not re.fullmatch(_ALONE, bare[0])):
        bare = [] if getattr(text, "cut", False) else bare[::-1]
    ranks = {value: rank for rank, value in reversed([*enumerate(results)])}
    for line, mark in [*marked, *((line, whole.by) for line in bare)]:
        if re.search(r"[\d\x04]", line):
            if conclusion and compiled(_RATE).match(line) and compiled(_SO).search(line):
                return None
            said = compiled(_SO).split(line)[-1] if conclusion and _lead(line) is None else line
            value = _number_of_line(said, results, ranks)
            if value is not None:
                read = to_number(value)
                return None if read is None else Read.of(read, mark, value.by)
    return None


def _results(text: str) -> list[str]:
    """The numbers on the right of '=', the last one first, without given ones ('cards = 52') before any calculation."""
    sides = [
        (left.rsplit("\n", 1)[-1], compiled(_FORMS["calculated"].pattern).match(right))
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


def _lead(text: str) -> Read | None:
    """The number that begins a text; '' for one that cannot be read, None for a text that does not begin with a number."""
    ratio = compiled(_FORMS["fraction"].pattern).match(text)
    leading = compiled(_FORMS["first"].pattern).match(text)
    if (
        ratio
        and len(ratio[0]) <= LONGEST
        and gcd(int(ratio[3]), int(ratio[4])) == 1
        and int(ratio[4])
    ):
        # 36/2 is an expression
        return Read.of(ratio[1] + _canonical(_ratio(ratio[2])), "fraction")
    if not leading:
        return None
    listed = leading[1] == UNREAD or compiled(_LISTED).match(text, leading.end())
    return Read.of("" if listed else leading[1].replace(" ", ""), "first")


def _number_of_line(line: str, results: list[str], ranks: dict[str, int]) -> Read | None:
    """The number that a line states, with the name of its form; '' for one that cannot be read. Where a sentence has several,
    the first of `results` among them: 'she pays $64 for 16 glasses' after '40 + 24 = 64'. ranks: the first place of each in
    `results`."""
    ratio = compiled(_FORMS["fraction"].pattern).match(line)
    if not ratio and re.fullmatch(rf"{_D}(?:{_OPERATION})+\s*=?", line):
        return None
    for row in RULES["after"]:
        for stated in map(_lead, re.split(row.pattern, line, flags=re.IGNORECASE)[:0:-1]):
            if stated is not None:
                return Read.of(stated, row.name)
    # such a line contains numbers and gives none as its result
    if re.search(either(RULES["none"]), line):
        return None
    leading = _lead(line)
    if leading is not None and not (results and results[0] in _numbers(line)):
        return leading
    # Nor does "65 * 2 = 13*2".
    if re.search(rf"=\s*{_D}(?:{_OPERATION})+[\s=.]*$", line):
        return None
    # Nor do '36/2', '2:30'; '2:00' alone is 2.
    bare = compiled(_TIME).sub("", line)
    hours = [] if bare and _numbers(bare) else re.findall(_FORMS["hour"].pattern, line)
    line = re.sub(rf"(?<!\d){_D}(?:{_OPERATION})+", "", bare)
    new = compiled(_FORMS["last but for what is given"].pattern).sub(" ", line)
    others = compiled(_FORMS["last but for what is beside it"].pattern).sub(" ", new)
    readings = {
        "last but for what is beside it": _numbers(others),
        "last but for what is given": _numbers(new),
        "last": _numbers(line),
        "hour": hours,
    }
    for numbers in [*readings.values()][:2]:
        if computed := [ranks[value] for value in numbers if value in ranks]:
            return Read.of(results[min(computed)], "calculated")
    return next((Read.of(numbers[-1], form) for form, numbers in readings.items() if numbers), None)


def _numbers(line: str) -> list[str]:
    return [
        "" if value == UNREAD else value for value in compiled(_FORMS["last"].pattern).findall(line)
    ]


# Confidences

_PROBABILITY = rf"""(?ix)(?<![\w.,])(?<![\d.]e[-+])(?P<sign>-[ ]?)?
    (?:(?P<value>0,\d+|\d\d?,\d+(?=[ ]?%)|\d+(?:\.\d+)?|\.\d+)
      |(?P<words>{_SPOKEN})(?=[ ]?(?:%|per[ ]?cent|out[ ]of|[.,;)!\n]|$)))
    (?P<range>[ ]?%?[ ]?(?:-|\u2013|to[ ])[ ]?\d+)?
    (?:[ ]?(?P<percent>%|per[ ]?cent\b)|[ ]?(?:/|out[ ]of)[ ]?(?P<scale>\d+))?
    (?!\w|[.,]\d)"""
_OTHER_SCALE = (
    r"[^\n:\d]*\d+ ?(?:-|to|and) ?(?!1(?:00)?\b)\d+\b[^\n\d]*:"  # "(1 to 10): 8" is not a percent
)
_CONFIDENCE = r"(?i)\bconfidence\b"


def _probability(match: re.Match) -> float | None:
    """The value in [0, 1] of a match of the pattern for stated probabilities, or None if it lies outside or is a range.

    A number with a decimal point and at most 1 is a probability ('0.85', '1.0'); every other number is a percentage.
    So the integer '1', stated on the scale from 0 to 100, is one percent and not certainty.
    """
    if match["sign"] or match["range"] or any_of("beside").match(match.string, match.end()):
        return None
    bare = match["percent"] is None and match["scale"] is None
    if bare and any_of("scaled").match(match.string, match.end()):
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
    rated = any_of("rated").search(text)
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
    return None if other or any_of("bound").search(before) else first


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
