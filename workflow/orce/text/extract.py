"""Parsers of what language models write: numbers, stated confidences, guesses. Tasks and methods use them.

The forms are rows of rules.csv, each with an example and what is read there. A parser takes free text, and returns None
(or an empty list) where the text does not state the value. It never guesses: a misread answer would count as the model's
own error, while an unreadable text is counted as unreadable.
"""

import re
import unicodedata
from collections.abc import Callable
from decimal import Context, Decimal
from functools import cache, partial
from itertools import pairwise
from math import gcd

from orce.text import Read, compiled, either, rules, table
from orce.text.marks import WHOLE, ascii_signs, lines, own_reply, plain, squeeze, statements

__all__ = [
    "answer_and_confidence", "ascii_signs", "confidence", "guesses", "lines", "number", "own_reply", "plain", "squeeze",
    "statements", "to_number",
]  # fmt: skip

# Numerals: `digits` writes every number in one form, before anything else reads the text

UNREAD = "\x04_"  # stands for a number that cannot be read whole
SPELLED = "\x05"  # stands before a number that was written in words
LONGEST = 100  # characters of a number
# Python's own context rounds to 28 digits, which is enough for a quotient.
_EXACT = Context(prec=2 * LONGEST)


def _number_words(kind: str) -> dict[str, int]:
    return {row["word"]: int(row["value"]) for row in table("numbers") if row["kind"] == kind}


_VALUES = _number_words("small")
_SCALES = _number_words("scale")
_PARTS = _number_words("part")
_SIGNS = _number_words("sign")
_MAGNITUDES = _number_words("magnitude")
_WORD = rf"(?:{'|'.join([*_VALUES, *_SCALES])})"
_ARTICLE = rf"an?(?=[ ](?:{'|'.join([*_SCALES, *_PARTS])})\b)"
_SPOKEN = rf"(?:{_WORD}|{_ARTICLE})(?:(?:[ -]|[ ]and[ ]){_WORD}){{0,20}}\b"
_SPACED = r"\d{1,3}(?:[ ]\d{3})+(?:,\d+)?(?![\d-]|[.,:]\d)\b"
_WRITTEN = rf"{_SPACED}|\d(?:[\d.,'_:]*\d)?|(?<!\.)\.\d+"
_NUMERAL = rf"(?i)(?<!\w)(?:(?P<written>{_WRITTEN})|(?P<spoken>{_SPOKEN})|(?P<vulgar>[¼-¾⅐-⅞]))"
_DECIMAL = r"\d++(?:\.\d++)?+"
_OPERATION = rf"\s*+(?:[-+*/x×÷]|plus|minus|times|divided by)\s*+(?:{_DECIMAL}|{UNREAD})"
# The kinds of rules in rules.csv, each in the order in which its rules are tried:
# rewriting   `digits`, before it reads numbers: other notations are written as it reads them
# continued   `digits`: what goes on after a number and changes its value
# spoilt      `digits`: what goes on after a number and makes the whole unreadable: 3π, 3x, 5 ± 1
# undecided   `digits`, after all: several numbers that are one value, or none
# after, none, form   `_number_of_line`
# What makes a number no confidence:
# bound       a word or a sign before it
# beside      alternatives or an error after it
# scaled      another scale than to 100 after a number without a unit
# rated       another scale than to 100 anywhere in the text
RULES = rules(
    number=_DECIMAL,
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
# (digits in groups of thousands or lakhs, the sign before their decimals). "1.250" is not grouped: a point may begin decimals.
_GROUPED = (
    (r"[1-9]\d{0,2}(?:,\d{3})+", r"\."),
    (r"[1-9]\d?(?:,\d\d)*,\d{3}", r"\."),
    (r"[1-9]\d{0,2}(?:\.\d{3})+", ","),
    (r"[1-9]\d{0,2}(?:['_]\d{3})+", r"\."),
    (r"[1-9]\d{0,2}(?: \d{3})+", "[.,]"),
)


def _lower(word: str) -> str:
    """In lower case, with the i and the s that a pattern takes ı and ſ for."""
    return word.lower().translate({0x131: "i", 0x307: None, 0x17F: "s"})


def _multiply(value: Decimal, word: str) -> Decimal:
    return _EXACT.multiply(value, Decimal(_SIGNS.get(word) or _MAGNITUDES[_lower(word)]))


def _power(value: Decimal, power: int) -> Decimal:
    return value**power if value % 1 else _EXACT.power(value, power)


def _spelled_digits(words: str) -> str:
    return "".join(str(_VALUES[word]) for word in _lower(words).split())


# {name of a rule "continued": the value of a number and of what goes on after it; None where that is too large}
_CHANGES: dict[str, Callable[[Decimal, str], Decimal | None]] = {
    "and a fraction": lambda value, ratio: value + _read_ratio(ratio),
    "and a half": lambda value, _: value + Decimal("0.5"),
    "point and digits in words": lambda value, words: value + Decimal(f".{_spelled_digits(words)}"),
    "parts": lambda value, part: value / _PARTS[_lower(part)],
    "power of ten": lambda value, power: (
        value.scaleb(int(power), _EXACT) if len(power) < 4 else None
    ),
    "power": lambda value, power: _power(value, int(power)) if len(power) < 3 and value else None,
    "magnitude": _multiply,
    "magnitude of a magnitude": _multiply,
}
_NOT_AFTER = r"(?:√|sqrt|log|ln|sin|cos|tan|±|\+/-)[ ]?[({]*\Z"
_NEGATIVE = (
    r"(?i)(?:((?:^|[:=(\"'\n]|\b(?:is|was|equals|be|of|at|about))\s*)minus|\bnegative)[ ]+\Z"
)


@cache
def any_of(kind: str) -> re.Pattern:
    """The rules of a kind as one pattern."""
    return compiled(either(RULES[kind]), re.IGNORECASE)


def _to_ascii(written: str) -> str:
    return unicodedata.normalize("NFKC", written).translate({0x2044: "/", 0x2212: "-"})


def _read_ratio(written: str) -> Decimal:
    above, below = _to_ascii(written).split("/")
    return Decimal(above) / Decimal(below)


def _read_words(words: str) -> Decimal | None:
    """'two thousand five hundred' as 2500; None for words that are several numbers ('two and three', 'nineteen eighty')."""
    whole = group = 0
    least = 10**15
    for word in re.split(r"[- ]+", _lower(words)):
        value = _VALUES.get(word, 0)
        scale = _SCALES.get(word, 1)
        if value:
            if group % (10 if value < 10 else 100) or (value < 10 and group % 100 == 10):
                return None
            group += value
        elif scale in (12, 100):
            group = (group or 1) * scale
        elif scale >= least:
            return None
        elif scale > 1:
            whole += (group or 1) * scale
            group = 0
            least = scale
    return Decimal(whole + group or int(words.lower() in ("a", "an")))


def _read_digits(numeral: str, comma: bool) -> Decimal | None:
    """The value of digits and their separators; a comma that cannot group them separates decimals, if `comma`."""
    if re.fullmatch(r"\d+|\d*\.\d+", numeral):
        return Decimal(numeral)
    for whole, point in _GROUPED:
        if grouped := re.fullmatch(rf"({whole})(?:{point}(\d+))?", numeral):
            return Decimal(re.sub(r"\D", "", grouped[1]) + f".{grouped[2] or 0}")
    if comma and re.fullmatch(r"\d+,\d+", numeral):
        return Decimal(numeral.replace(",", "."))
    return None


def _canonical(value: Decimal) -> str:
    return format(value.normalize(_EXACT) if value else Decimal(0), "f")


def _read_numeral(match: re.Match, comma: bool) -> tuple[str, int]:
    """A match of _NUMERAL as a decimal, or UNREAD; and where it ends, with what goes on after it."""
    text = match.string
    end = match.end()
    if re.fullmatch(r"\d\d?(?::\d\d)+", match[0]):
        return match[0], end  # a time of day
    readers = {
        "written": partial(_read_digits, comma=comma),
        "spoken": _read_words,
        "vulgar": _read_ratio,
    }
    value = readers[str(match.lastgroup)](match[0]) if len(match[0]) <= LONGEST else None
    for row in RULES["continued"]:
        if value is None:
            break
        if more := compiled(row.pattern, re.IGNORECASE).match(text, end):
            value = _CHANGES[row.name](value, _to_ascii(next(filter(None, more.groups()), "")))
            end = more.end()
    if value is not None and (spoilt := any_of("spoilt").match(text, end)):
        value = None
        end = spoilt.end()
    before = text[max(0, match.start() - 8) : match.start()]
    after = text[end : end + 1]
    is_pair = "," in match[0] and before.endswith("(") and after == ")"
    is_operand = compiled(_NOT_AFTER).search(before)
    number = UNREAD if value is None else _canonical(value)
    if len(number) > LONGEST or is_pair or is_operand or after.isdecimal():
        number = UNREAD
    return number if match["written"] else SPELLED + number, end


def digits(text: str, comma: bool = True) -> str:
    """The text with each number as a decimal: '1,00,000' as 100000, '2 1/2' as 2.5, 'two million' as 2000000.

    UNREAD stands for a range, and for any other number that cannot be read whole; SPELLED before one in words.
    """
    for row in RULES["rewriting"]:
        text = compiled(row.pattern).sub(row.new, text)
    if not text.isascii():
        text = re.sub(r"(?![0-9])\d", lambda digit: str(int(digit[0])), text)
    parts = []
    end = 0
    for match in compiled(_NUMERAL).finditer(text):
        if match.start() < end:
            continue  # it belongs to the number before
        before = text[end : match.start()]
        if sign := compiled(_NEGATIVE).search(before, max(0, len(before) - 30)):
            before = f"{before[: sign.start()]}{sign[1] or ''}-"
        number, end = _read_numeral(match, comma)
        parts += [before, number]
    text = "".join([*parts, text[end:]])
    return any_of("undecided").sub(UNREAD, text.replace("-" + SPELLED, SPELLED + "-"))


def to_number(text: str) -> str | None:
    """'1,200', '- 5', '17.0', '$3' as canonical decimal text ('1200', '-5', '17', '3'); None if it is not a number.

    A comma separates thousands: '3,5' is not a number.
    """
    written = re.fullmatch(
        rf"\s*+([-+]?)\s*+({_DECIMAL})\s*+", digits(ascii_signs(text), comma=False)
    )
    return _canonical(Decimal(written[1] + written[2])) if written else None


# Numbers that a text gives as its answer, after `digits`

_LISTED = r"(?:[,;&]|\s+and\s)\s*[-\x05]*\d"  # of "2, 3" neither is the answer
# Where the conclusion of a line begins.
_CONCLUSION = r"(?<=[.!?])\s+(?=(?:Therefore|Thus|Hence|So|In total)\b)|,\s+(?=so\b(?! that))"
# "$5 each, so $15 in total" begins with another number than it concludes with.
_RATE = (
    rf"(?i)[\s:(\"'~≈]*+\x05?{_DECIMAL}\s+(?:[^\W\d]+\s+)?(?:each|apiece|per|for\s+{_DECIMAL})\b"
)
_TIME = r"\b\d\d?:\d\d\b"
# A line that is a number and nothing else but a unit or a sign of currency.
_ALONE = rf"[\s=\"'(]*-?[ ]?{_DECIMAL}(?:[\s%.)\"']*|[ ]?[^\W\d]+[.]?)"


@own_reply
def number(text: str, conclusion: bool = False) -> str | None:
    """The number that a text gives as its answer, as canonical decimal text, or None.

    The last marked answer (orce.text.marks) that contains a number counts. Without one, the first line that is more than
    an expression counts: its number after '=', else after 'is' or 'equals', else the number it begins with, else its
    last number. conclusion: the text may reason first, so without a mark its last line with a number counts in place of
    the first one, unless the first is a number alone; a text that was cut off at its token budget has no last line. What
    follows a mark is read from its last line too if it calculates, and does not begin with a number.
    """
    parts = statements(digits(plain(text)))
    results = _calculated_results(parts[-1]) if conclusion else []
    ranks = {result: rank for rank, result in enumerate(dict.fromkeys(results))}
    is_cut = getattr(text, "cut", False)
    for part in parts:
        for line in _lines_in_order(part, conclusion, is_cut):
            if not re.search(r"[\d\x04]", line):
                continue
            if conclusion and compiled(_RATE).match(line) and compiled(_CONCLUSION).search(line):
                return None
            if conclusion and _leading_number(line) is None:
                line = compiled(_CONCLUSION).split(line)[-1]
            value = _number_of_line(line, ranks)
            if value is not None:
                read = to_number(value)
                return None if read is None else Read.of(read, part.by, value.by)
    return None


def _lines_in_order(part: Read, conclusion: bool, is_cut: bool) -> list[str]:
    """The lines of a part of a text (orce.text.marks.statements) in the order in which `number` reads them."""
    text_lines = lines(part)
    if part.by != WHOLE:
        begins = _leading_number("".join(text_lines[:1])) is not None
        calculates = conclusion and not begins and _calculated_results("\n".join(text_lines[1:]))
        return text_lines[::-1] if calculates else text_lines
    unlisted = _without_list_marks(text_lines)
    opening = unlisted[0] if unlisted else ""
    is_alone = opening in text_lines[:1] and re.fullmatch(_ALONE, opening)
    if is_alone or not conclusion:
        return unlisted
    return [] if is_cut else unlisted[::-1]


def _form(name: str) -> re.Pattern:
    return next(compiled(row.pattern) for row in RULES["form"] if row.name == name)


def _calculated_results(text: str) -> list[str]:
    """The numbers on the right of '=', the last one first, without given ones ('cards = 52') before any calculation."""
    results = []
    calculates = False
    for left, right in pairwise(text.split("=")):
        result = _form("calculated").match(right)
        if result is None:
            continue
        signs = re.split(r"\d+", left.rsplit("\n", 1)[-1])[1:-1]
        if not calculates and re.search("[-+*/x×÷]", "".join(signs)):
            calculates = True
            results.clear()
        results.append(result[1].replace(" ", ""))
    return results[::-1]


def _without_list_marks(text_lines: list[str]) -> list[str]:
    """Lines without 'Step 5:' and the numbers or dashes of a list of two or more: '5. Thus, it takes 3 bolts' is not 5."""
    text_lines = [re.sub(r"^Step \d+[:.]\s*", "", line) for line in text_lines]
    if sum(bool(re.match(r"[-*\u2022]\s+\S", line)) for line in text_lines) > 1:
        text_lines = [re.sub(r"^[-*\u2022]\s+", "", line) for line in text_lines]
    item = r"^(\d{1,2})[.)]\s+(?=\S)"
    numbers = {int(match[1]) for line in text_lines if (match := re.match(item, line))}

    def without_number(match: re.Match) -> str:
        number = int(match[1])
        return "" if numbers & {number - 1, number + 1} else match[0]

    return [re.sub(item, without_number, line) for line in text_lines]


def _leading_number(text: str) -> Read | None:
    """The number that begins a text; '' for one that cannot be read, None for a text that does not begin with a number."""
    ratio = _form("fraction").match(text)
    if ratio and len(ratio[0]) <= LONGEST:
        above = int(ratio[3])
        below = int(ratio[4])
        if below and gcd(above, below) == 1:  # 36/2 is an expression
            return Read.of(ratio[1] + _canonical(_read_ratio(ratio[2])), "fraction")
    first = _form("first").match(text)
    if first is None:
        return None
    unread = first[1] == UNREAD or compiled(_LISTED).match(text, first.end())
    return Read.of("" if unread else first[1].replace(" ", ""), "first")


def _number_of_line(line: str, ranks: dict[str, int]) -> Read | None:
    """The number that a line states, by the name of its form; '' for one that cannot be read, None for a line without a result.

    ranks: {result of the text's calculations: its rank, 0 for the last one}. Of several numbers in a sentence the one of the
    lowest rank counts: 64 in 'she pays $64 for 16 glasses' after '40 + 24 = 64'.
    """
    is_fraction = _form("fraction").match(line)
    if not is_fraction and re.fullmatch(rf"{_DECIMAL}(?:{_OPERATION})+\s*=?", line):
        return None
    for row in RULES["after"]:
        _, *sides = re.split(row.pattern, line, flags=re.IGNORECASE)
        for stated in map(_leading_number, reversed(sides)):
            if stated is not None:
                return Read.of(stated, row.name)
    if re.search(either(RULES["none"]), line):
        return None
    leading = _leading_number(line)
    if leading is not None and next(iter(ranks), None) not in _numbers(line):
        return leading
    # "65 * 2 = 13*2" goes on.
    if re.search(rf"=\s*{_DECIMAL}(?:{_OPERATION})+[\s=.]*$", line):
        return None
    # Times of day and operands are no results; '2:00' alone is 2.
    timeless = compiled(_TIME).sub("", line)
    hours = [] if timeless and _numbers(timeless) else _form("hour").findall(line)
    every = re.sub(rf"(?<!\d){_DECIMAL}(?:{_OPERATION})+", "", timeless)
    not_given = _form("last but for what is given").sub(" ", every)
    not_beside = _form("last but for what is beside it").sub(" ", not_given)
    readings = {
        "last but for what is beside it": _numbers(not_beside),
        "last but for what is given": _numbers(not_given),
        "last": _numbers(every),
        "hour": hours,
    }
    for form in ("last but for what is beside it", "last but for what is given"):
        computed = [value for value in readings[form] if value in ranks]
        if computed:
            return Read.of(min(computed, key=ranks.__getitem__), "calculated")
    for form, numbers in readings.items():
        if numbers:
            return Read.of(numbers[-1], form)
    return None


def _numbers(line: str) -> list[str]:
    """The numbers of a line; '' for each that cannot be read."""
    numbers = _form("last").findall(line)
    return ["" if number == UNREAD else number for number in numbers]


# Confidences

_PROBABILITY = rf"""(?ix)(?<![\w.,])(?<![\d.]e[-+])(?P<sign>-[ ]?)?
    (?:(?P<value>0,\d+|\d\d?,\d+(?=[ ]?%)|\d+(?:\.\d+)?|\.\d+)
      |(?P<words>{_SPOKEN})(?=[ ]?(?:%|per[ ]?cent|out[ ]of|[.,;)!\n]|$)))
    (?P<range>[ ]?%?[ ]?(?:-|\u2013|to[ ])[ ]?\d+)?
    (?P<unit>[ ]?(?P<percent>%|per[ ]?cent\b)|[ ]?(?:/|out[ ]of)[ ]?(?P<scale>\d+))?
    (?!\w|[.,]\d)"""
# "(1 to 10): 8" is not a percentage.
_OTHER_SCALE = r"[^\n:\d]*\d+ ?(?:-|to|and) ?(?!1(?:00)?\b)\d+\b[^\n\d]*:"
# "Confidence (0-100): 85" and "Confidence on a scale of 0 to 100: 85" name the scale before the value.
_SCALE = r"^(?:[^\n:\d(]|\([^)\n]*+\)|\d++ ?(?:-|to|and) ?\d++)*+:|^ [-\u2013](?= \d)"
_CONFIDENCE = r"(?i)\bconfidence\b"
_OR = rf"(?i)(?:\d[ ]?%?|\b{_WORD})[ ]+or[ ]+\Z"  # "15% or 85%" states none


def _probability(match: re.Match) -> float | None:
    """The value in [0, 1] of a match of the pattern for stated probabilities, or None if it lies outside or is a range.

    A number with a decimal point and at most 1 is a probability ('0.85', '1.0'); every other number is a percentage.
    So the integer '1', stated on the scale from 0 to 100, is one percent and not certainty.
    """
    if match["sign"] or match["range"] or any_of("beside").match(match.string, match.end()):
        return None
    if match["unit"] is None and any_of("scaled").match(match.string, match.end()):
        return None
    written = (match["value"] or "").replace(",", ".")
    value = Decimal(written) if written else _read_words(match["words"])
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
    is_named = compiled(_CONFIDENCE).search(text) is not None
    label = _CONFIDENCE if is_named else r"(?im)^[^\w\n]*probability(?=\s*[:=])"
    is_rated = any_of("rated").search(text)
    last = None
    for rest in compiled(label).split(text)[1:]:
        match = _near_start(re.sub(_SCALE, "", rest))
        if match and (match["unit"] or not (is_rated or compiled(_OTHER_SCALE).match(rest))):
            last = match
    if last:
        return _probability(last)
    first_line = "".join(lines(text)[:1]).strip(" .!\"'()~")
    if alone := compiled(_PROBABILITY).fullmatch(first_line):
        return _probability(alone)
    for match in compiled(_PROBABILITY).finditer(text):
        if _is_confidence(match, is_named):
            last = match
    if last is None or compiled(_OR).search(text[max(0, last.start() - 20) : last.start()]):
        return None
    return _probability(last)


def _is_confidence(match: re.Match, is_named: bool) -> bool:
    """Whether a number without a label is a percentage or a fraction of 100, and not an option's own text ('A. 10%'). In a
    text with the word 'confidence' (is_named), only '85% confidence' counts."""
    if match["percent"] is None and match["scale"] != "100":
        return False
    text = match.string
    end = match.end()
    if is_named and not re.match(r"(?i)\s*confidence", text[end : end + 20]):
        return False
    before = text[max(0, match.start() - 9) : match.start()]
    return not re.search(r"(?:^|\s)\(?[A-Z][.):]\s*$", before)


def _near_start(text: str) -> re.Match | None:
    """The first probability of the first line, if at most a few words come before it."""
    line = text.strip().split("\n")[0]
    first = compiled(_PROBABILITY).search(line[:60])
    if first is None or first.start() > 30:
        return None
    before = line[: first.start()]
    if any_of("bound").search(before):
        return None
    # "nine in ten" is two numbers, and the second one no confidence.
    if first["unit"] is None and compiled(_NUMERAL).search(before):
        return None
    return first


# Answers with probabilities, for the prompting baselines


@own_reply
def guesses(text: str, k: int) -> list[tuple[str, float | None]]:
    """Up to `k` (answer text, probability in [0, 1] or None) of a Top-k reply 'G1: ... P1: ...', by number.

    The first list counts, since some models repeat it.
    """
    label = r"(?<!\w)(G|P|Guess|Prob(?:ability)?)[ ]?(\d{1,3})[\"']?\s*[:=]"
    _, *pieces = re.split(label, plain(text), flags=re.IGNORECASE)
    found: dict[str, dict[int, str]] = {"G": {}, "P": {}}
    for kind, rank, value in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        # Quotes and dashes around the value go; a minus sign stays.
        bare = re.sub(r"^(?:[\s,;\"']|-(?![\d.]))+", "", value).rstrip(" \t\r\n,;-([\"'")
        found[kind[0].upper()].setdefault(int(rank), bare)
    guessed = []
    for rank, answer in sorted(found["G"].items()):
        if not answer or not 1 <= rank <= k:
            continue
        answer = next(iter(lines(answer)), answer)
        stated = found["P"].get(rank)
        # "Paris (70%)", but not "120 / 100 = 2.25%".
        inside = re.search(r"(?<=[^\s(,=])[\s(,]+\(?([\d.]+\s?%)\)?$", answer)
        if stated is None and inside:
            answer = answer[: inside.start()]
            stated = inside[1]
        match = _near_start(stated or "")
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
    sections = re.split(r"(?i)(?<![\s,;(])[\s,;(]*\b(?:my |overall )?confidence\b", text)
    for section in reversed(sections):
        statement = statements(section)[0]
        text_lines = lines(statement)
        if statement.by != WHOLE and text_lines:
            return text_lines[0], value
    # Without a label: the line before the confidence, or the only line; never a line of reasoning.
    before = lines(sections[0])
    if len(before) > 1 and len(sections) == 1:
        return None, value
    if not before or re.match(r"(?i)explanation|step \d", before[-1]):
        return None, value
    return before[-1], value
