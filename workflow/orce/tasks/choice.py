"""Multiple choice from any data set: the configuration's `fields` say where question, options and
answer stand.

fields: question; choices, a list of option texts, a mapping of label to text, a mapping of option
to 0 or 1, or several columns with an option each (unless the dataset gives `options`); answer; and
optional id, context, labels (the published names of the options). `answer_is` says how to read an
answer that could mean several options. Answers are letters, from 'A' to the last option's.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from orce.artefacts.records import Example, Score
from orce.tasks import rows
from orce.tasks.options import letters
from orce.text import Read, rules
from orce.text.extract import LONGEST, to_number
from orce.text.marks import DENIED, WHOLE, lines, occurrences, own_reply, plain, squeeze, statements

ANSWER_KIND = "option letter"
MAX_TOKENS = 16
NINTH = 9  # options of which one is I
METRIC = "accuracy"
FIELDS = {
    "question": True,
    "answer": True,
    "choices": False,
    "labels": False,
    "id": False,
    "context": False,
}
OPTIONS = ("options", "shuffle", "answer_is", "answer_pattern", "answer_marks", "ask")
# "not A", "anything but (A)"; "Rome is wrong".
_NOT_THIS = re.compile(
    r"(?i:\bnot|n't|\banything but|\bdoubt (?:that )?it(?:'s| is))\s+(?:option\s+)?[(\"']*[A-Z](?![\w'])[)\"']*"
)
_WRONG = r"\W+(?:is|are|was|were)(?:n't| not| incorrect| wrong| false)\b"
# An option's probability, or whether it is marked: of several options that have one, none is chosen. A bare number or word is
# a value only behind a sign.
_SHARE = r"\d{1,3}(?:\.\d+)?\s?%|\d{1,3}/\d{1,3}\b|[✓✔✗✘✅❌☑☒]"
_WORTH = r"[01]?\.\d+|(?i:(?:un)?likely|high|low|yes|no|true|false|(?:in)?correct|right|wrong)\b"
_HAS = r",?\s(?:has|with|at)\s[^.\n;A-Z]{0,30}?"
# The word I, where options go as far as that letter: "I, as a physicist, ..."; not "I, because ...".
_PRONOUN = (
    r"(?<!\w)(?<!option )(?<!choice )(?<!letter )(?<!answer )(?<!is )(?<![(\[\"'])I(?!\W*{own})"
    r"(?=,(?!\s*(?:because|since)\b)|\s+[-\u2013\u2014=(]|\s+(?!(?:is|was|because|since|and|or|as)\b)[a-z])"
)
BESIDE = 100  # characters before and after an option that may deny it
_SURELY = r"(?:definitely|certainly|clearly|surely|probably|most likely|likely)"


def load(
    source: Mapping[str, Any], split: str, seed: int = 0, first: int | None = None
) -> list[Example]:
    """Examples of a split, or of its first rows. `source` has fields, options, shuffle, answer_is
    and ask (docs/extending.md) beside hub or path. Raises BadInput naming the row.
    """
    return rows.load_examples(source, split, first, lambda asked: example(asked, source, seed))


def example(asked: rows.Question, source: Mapping[str, Any], seed: int) -> Example:
    """The example of a question, with its options in their order or, by the seed, in another."""
    choices = asked.options or []
    order = [*range(len(choices))]
    if source.get("shuffle"):
        order.sort(key=lambda i: hashlib.sha256(f"{seed} {asked.id} {i}".encode()).digest())
    right = order.index(ord(asked.reference) - ord("A"))
    return asked.example("choice") | {
        "choices": [choices[i] for i in order],
        "reference": letters(choices)[right],
    }


# Asking and scoring


def question(example: Example) -> str:
    """The passage if there is one, the question, and one lettered option per line."""
    choices = example["choices"]
    context = [example["context"], ""] if example["context"] else []
    lettered = [
        f"{letter}. {choice}" for letter, choice in zip(letters(choices), choices, strict=True)
    ]
    return "\n".join([*context, example["question"], *lettered])


def prompt(example: Example, shots: int | None = None) -> list[dict]:
    """Zero-shot: the benchmark's training questions are the method's training data, so none serve
    as examples.
    """
    return rows.zero_shot("choice", question(example), shots)


def extract(text: str, example: Example) -> str | None:
    """The option that a text chooses, or the part of the text that the dataset's own pattern finds."""
    matched = rows.matched_text(text, example)
    return rows.named_by(chosen(matched, example), text, matched, example)


def score(answer: str | None, example: Example) -> Score:
    return {"correct": answer == example["reference"], "f1": None}


def key(answer: str, example: Example) -> str:
    return answer


def display(answer: str | None, example: Example) -> str:
    """'B. Paris', or '(no answer)'."""
    if answer is None:
        return "(no answer)"
    return f"{answer}. {example['choices'][ord(answer) - ord('A')].strip()}"


# Reading the letter

Reader = Callable[[str, list], Read | None]
PROSE = rules(surely=_SURELY)["prose"]


@own_reply
def chosen(text: str, example: Example) -> str | None:
    """The letter of the option that a text chooses, or None if it chooses none or several.

    The last 'Answer: ...' that names an option counts; without one, the whole text. An option is
    named by its text, or by its letter where that is an answer (alone, in brackets, before '.', ')'
    or ':', after 'option') and not a word of a sentence. A copy of the list of options is not a
    choice.
    """
    # After a word, because '#' and '-' mark a heading or a bullet only at the start of a line.
    choices = [plain(f"A {choice}")[2:] for choice in example["choices"]]
    shown = plain(text)
    if letter := _same_text(shown, choices):
        return Read.of(letter, WHOLE, "same text")  # also where it speaks of a confidence
    before_cjk = rf"(?<![A-Za-z])([{letters(choices)}])(?=[\u3040-\u9fff\uac00-\ud7af])"  # Bです
    for said in statements(re.sub(before_cjk, r"\1 ", shown), short=False):
        statement: str = said
        text_lines = lines(statement)
        if (
            len(text_lines) == 1
            and _several(text_lines[0], choices)
            and not _same_text(text_lines[0], choices)
        ):
            return None  # "A or B" and "none of these" choose none, whatever came before
        # Letters that are denied do not count: "not A but B".
        statement = _without_echo(_NOT_THIS.sub(" ", statement), choices)
        statement = _without_values(statement, choices)
        if len(choices) >= NINTH:
            own = re.escape(choices[NINTH - 1].strip()) or "(?!)"
            statement = re.sub(_PRONOUN.format(own=own), "we", statement)
        if letter := _read(statement, choices):
            return Read.of(letter, said.by, letter.by)
    return None


def _without_values(text: str, choices: list) -> str:
    """The text without options that have a value each: 'A: 10%, B: 80%', 'A ✗ B ✓', '[ ] A [x] B', '- A' above '- B'. It says of
    several what it thinks of them, and which of them it means would be a guess. An option's own words are no value of it."""
    letter = f"(?P<letter>[{letters(choices)}])"
    sign = r"[-\u2013\u2014:=.)]"
    share = rf"(?:{_HAS}|\s*[-\u2013\u2014:=(]?\s*)(?:{_SHARE})"
    valued = (
        rf"(?<![\w']){letter}[)\].:\"']*(?:{share}|\s*{sign}\s*(?P<word>{_WORTH}))",
        rf"[\[(][ xX✓✔]?[\])]\s*[\"'(]*{letter}(?!\w)",
        rf"(?m)^[ \t]*(?:[-*\u2022]|\d{{1,2}}[.)])[ \t]+{letter}[ \t.]*$",
    )
    for pattern in valued:
        having = set()
        for match in re.finditer(pattern, text):
            own = choices[ord(match["letter"]) - ord("A")].strip().casefold()
            word = match.groupdict().get("word")
            if word is None or not own.startswith(word.casefold()):
                having.add(match["letter"])
        if len(having) > 1:
            text = re.sub(pattern, " ", text)
    return text


def _read(text: str, choices: list) -> Read | None:
    """The letter of an option, with the name of the form that names it."""
    text_lines = lines(text)
    every = letters(choices)
    if not text_lines:
        return None
    # Full texts come before letters: "C. difficile" can be an option, and "A only" begins with a
    # letter.
    readers: tuple[Reader, ...] = (_same_text, _leading_text, _leading_letter, _named_letter)
    discussed = {
        line[1] for line in map(re.compile(rf"\(?([{every}])[).:]\s+\S").match, text_lines) if line
    }
    if len(discussed) < 2:
        for read in readers:
            if letter := read(text_lines[0], choices):
                return letter
    # A letter alone on the last line, after the reasoning, or the one that a last line like
    # 'Therefore, ...' names.
    alone = re.fullmatch(rf"\W*([{every}])\W*", text_lines[-1])
    concluding = r"(?:therefore|thus|hence|so|overall|based on|given|considering|in conclusion)\b"
    concluded = (
        _named_letter if re.match(concluding, text_lines[-1], re.IGNORECASE) else _leading_text
    )
    last = Read.of(alone[1], "letter alone") if alone else concluded(text_lines[-1], choices)
    if named := last or _named_letter(text, choices):
        return named
    if re.search(rf"\b[{every}][).:]\s", text):
        return None
    return _contained_text(text, choices)


def _same_text(line: str, choices: list) -> Read | None:
    form = squeeze(line)
    if form.upper() in line and form.upper() in letters(choices):
        return None  # 'C' is the requested letter, even if some option's text is 'C'
    same = [i for i, choice in enumerate(choices) if choice.strip() == line]
    if not same and len(line) <= LONGEST and (value := to_number(line)):
        # .50 is 0.5
        return _single(
            [i for i, choice in enumerate(choices) if to_number(choice) == value], "same number"
        )
    same = same or [i for i, choice in enumerate(choices) if form and squeeze(choice) == form]
    return _single(
        same
        or [i for i, choice in enumerate(choices) if _bare(form) and _bare(choice) == _bare(form)],
        "same text",
    )


def _bare(text: str) -> str:
    """A text without spaces and a sign of 'about' before it: '~ 3.2' and '3.2', 'kq^2 R/d' and 'k
    q^2 R / d'.
    """
    return re.sub(r"\s", "", squeeze(text)).lstrip("~\u2248")


def _leading_text(line: str, choices: list) -> Read | None:
    """The option whose text opens a line and is set off there: 'No. They are ...', 'Likely no'; not
    'No. 5', 'No one'.
    """
    opening = re.match(r"[^\w\-]*+(?:\w+ly\s+)?(.+?)(?:$|[.,;:!](?!\s*\d))", line)
    form = squeeze(opening[1].rstrip("\"')]")) if opening else None
    worded = (
        (i, squeeze(choice))
        for i, choice in enumerate(choices)
        if re.search(r"[^\W\d_]{2}", choice)
    )
    return _single([i for i, words in worded if words == form], "first text")


def _leading_letter(line: str, choices: list) -> Read | None:
    """The letter that opens a line: 'B', '(B) Paris', 'B: Paris', 'B Paris', 'B because ...'; not
    'A company ...'.
    """
    start = rf"(?i)[^\w]*+(?:\d{{1,2}}[.)]\s+)?(?:{_SURELY}\s+)?(?:option |choice )?[\"'(\[]*"
    match = re.match(
        rf"{start}([{letters(choices)}])([)\].:,;\"']*)(?:(?<=[)\]])|(?![\w'/]))", line
    )
    if not match:
        return None
    letter = match[1].upper()
    rest = line[match.end() :].strip()
    bare = "" if re.search(r"[.):\]]", match[2]) else "?"
    if re.match(rf"(?:(?:and|or|&|,|/)\s*){bare}[(\"']*[{letters(choices)}](?![\w'])", rest):
        return None
    own = choices[ord(letter) - ord("A")].strip().casefold()
    reason = re.match(
        r"[-\u2013\u2014=(]|because|since|is (?:the )?(?:correct|right|best)|です|だ|입니다|이다|है",
        rest,
    )
    chosen = match[2] or reason or not rest or (own and rest.casefold().startswith(own))
    return Read.of(letter, "first letter") if chosen else None


def _named_letter(text: str, choices: list) -> Read | None:
    """The one letter that prose marks as an option: 'option B', 'I choose B', 'B is correct', 'so
    B', 'it is B', '(B)'.
    """
    for row in PROSE:
        matches = {*re.findall(row.pattern.replace("«letter»", f"([{letters(choices)}])"), text)}
        if len(matches) == 1:
            return Read.of(matches.pop(), row.name)
    return None


def _several(line: str, choices: list) -> bool:
    """Whether a line lists options, or denies them all, and says nothing else: 'A or B', '(D) attic
    or (E) cupboard', 'none of these'.
    """
    if re.match(r"none of (?:the|these|them)\b", line, re.IGNORECASE):
        return True
    label = "|".join(
        rf"[\"'(]*{letter}(?![\w'])[\"')]*(?:\s*{re.escape(choice.strip())})?+"
        for letter, choice in zip(letters(choices), choices, strict=True)
    )
    listed = rf"(?:either|both)?\s*(?:{label})(?:(?:[\s,/&]|\bor\b|\band\b)+(?:{label}))+"
    return re.fullmatch(listed, line.strip(" ."), re.IGNORECASE) is not None


def _without_echo(text: str, choices: list) -> str:
    """The text without a copy of the list of options: at least two of them in order; the last may
    be cut off.
    """
    start = end = count = 0
    for letter, choice in zip(letters(choices), choices, strict=True):
        option = r"\s+".join(map(re.escape, choice.strip(" .").split()))
        label = rf"\(?\b{letter}[).:][\s.]*"
        opening = (
            re.compile(rf"(?i)\s*{label}").match(text, end)
            if count
            else re.search(f"(?i){label}", text)
        )
        if opening is None:
            break
        whole = re.compile(rf"(?i){option}(?:\s?[.,;])*(?:(?!\w)|(?<=\s))").match(
            text, opening.end()
        )
        if not whole and not (
            count and squeeze(choice).startswith(squeeze(text[opening.end() :]))
        ):  # the last, cut off
            break
        start = start if count else opening.start()
        end = whole.end() if whole else len(text)
        count = count + 1
    return f"{text[:start]}\n{text[end:]}" if count > 1 else text


def _contained_text(text: str, choices: list) -> Read | None:
    """The one option whose text the answer contains, or that begins with the answer (cut off by the
    token budget).
    """
    form = squeeze(text)
    texts = [squeeze(choice) for choice in choices]
    if any(len(option) <= 2 and option.isalpha() for option in texts):
        return None  # "no" occurs in any sentence, so "yes" cannot be distinguished
    # Digits and very short words occur in any sentence.
    distinctive = [
        (i, option)
        for i, option in enumerate(texts)
        if len(option) > 2 and re.search(r"[^\W\d]", option)
    ]

    if held := [i for i, option in distinctive if option in form and _affirmed(option, form)]:
        return _single(
            [
                i
                for i in held
                if not any(texts[i] != texts[j] and texts[i] in texts[j] for j in held)
            ],
            "text in it",
        )
    return _single(
        [i for i, option in enumerate(texts) if len(form) >= 8 and option.startswith(form)],
        "beginning of a text",
    )


def _affirmed(option: str, form: str) -> bool:
    """Whether a text has an option in it as whole words, and does not deny it there."""
    for start in occurrences(option, form):
        end = start + len(option)
        before = form[max(0, start - BESIDE) : start]
        after = form[end : end + BESIDE]
        if not re.search(rf"\w\Z|{DENIED}\Z", before) and not re.match(rf"\w|{_WRONG}", after):
            return True
    return False


def _single(indices: list[int], form: str) -> Read | None:
    return Read.of(chr(ord("A") + indices[0]), form) if len(indices) == 1 else None
