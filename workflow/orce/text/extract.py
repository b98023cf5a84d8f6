"""Reading what language models write: answers, numbers, stated confidences, guesses. Used by tasks and methods.

Every parser takes free text and returns None (or an empty list) where the text does not state the value. A parser never
guesses: a misread answer would count as the model's own error, while an unreadable text is counted as unreadable.
"""

import re
from decimal import Decimal

from orce.text.marks import ascii_signs, lines, own_reply, plain, squeeze, statements
from orce.text.numerals import IN_WORDS, number, to_number, words_to_number

__all__ = [
    "answer_and_confidence", "ascii_signs", "confidence", "guesses", "lines", "number", "own_reply", "plain", "probability",
    "squeeze", "statements", "to_number",
]  # fmt: skip

# Confidences

_PROBABILITY = re.compile(
    rf"""(?<![\w.,])(?P<sign>-[ ]?)?
    (?:(?P<value>0,\d+|\d\d?,\d+(?=[ ]?%)|\d+(?:\.\d+)?|\.\d+)
      |(?P<words>{IN_WORDS})(?=[ ]?(?:%|per[ ]?cent|out[ ]of|[.,;)!\n]|$)))
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
    # "Confidence (0-100): 85" and "Confidence on a scale of 0 to 100: 85" name the scale before the value.
    scale = r"^(?:[^\n:\d(]|\([^)\n]*\)|\d+ ?(?:-|to|and) ?\d+)*:|^ [-\u2013](?= \d)"
    stated = [match for part in parts if (match := _near_start(re.sub(scale, "", part)))]
    if not stated:
        alone = _PROBABILITY.fullmatch("".join(lines(text)[:1]).strip(" .!\"'()~"))
        stated = [alone] if alone else _with_unit(text)
    return probability(stated[-1]) if stated else None


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
        bare = re.sub(r"^(?:[\s,;]|-(?![\d.]))+|[\s,;-]+$", "", value)  # a bullet goes, a minus sign stays
        (answers if kind[0] in "Gg" else probabilities).setdefault(int(place), bare)
    return [_guess(answers[i], probabilities.get(i)) for i in sorted(answers) if 1 <= i <= k and answers[i]]


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
    head = re.split(r"(?<![\s,;(])[\s,;(]*\b(?:my |overall )?confidence\b", text, flags=re.IGNORECASE)
    for part in reversed(head):
        stated = statements(part)[:-1]
        if stated and lines(stated[0]):
            return lines(stated[0])[0]
    # Without a label: the line before the confidence, or the only line; never a line of reasoning.
    before = lines(head[0])
    marked = before and (len(head) > 1 or len(before) == 1)
    return before[-1] if marked and not re.match(r"explanation|step \d", before[-1], re.IGNORECASE) else None
