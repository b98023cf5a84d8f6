"""Multiple choice: what MMLU, LogiQA 2.0 and ReClor share. Answers are letters, 'A' to the last option's."""

import re

from orce.artefacts.tables import Row
from orce.errors import BadInput
from orce.records import Example, Score
from orce.tasks.parts.source import field
from orce.text.extract import lines, own_reply, plain, squeeze, statements
from orce.text.prompting import render

ANSWER_KIND = "option letter"
MAX_TOKENS = 16
METRIC = "accuracy"
NEEDS = ("choices",)


def letters(choices: list) -> str:
    return "".join(chr(ord("A") + i) for i in range(len(choices)))


def question(example: Example) -> str:
    """The passage if there is one, the question, and one lettered option per line."""
    choices, context = example["choices"], [example["context"], ""] if example["context"] else []
    lettered = [f"{letter}. {choice}" for letter, choice in zip(letters(choices), choices, strict=True)]
    return "\n".join([*context, example["question"], *lettered])


def prompt(example: Example, shots: int | None = None) -> list[dict]:
    """Zero-shot: the benchmark's training questions are the method's training data, so none serve as examples."""
    if shots:
        raise BadInput(f"shots is {shots}, but this task has no worked examples; use 0")
    return [{"role": "user", "content": render("choice", question=question(example))}]


def score(answer: str | None, example: Example) -> Score:
    return {"correct": answer == example["reference"], "f1": None}


def key(answer: str, example: Example) -> str:
    return answer


def display(answer: str | None, example: Example) -> str:
    """'B. Paris', or '(no answer)'."""
    if answer is None:
        return "(no answer)"
    return f"{answer}. {example['choices'][ord(answer) - ord('A')].strip()}"


def options(row: Row, name: str) -> list[str]:
    """The option texts of a row, at least two. Empty texts pass: published sets have some."""
    choices = field(row, name)
    if not isinstance(choices, list | tuple) or len(choices) < 2 or not all(isinstance(one, str) for one in choices):
        raise BadInput(f"{row[0]}: {name!r} is {choices!r}; expected a list of at least two option texts")
    return list(choices)


def reference(row: Row, name: str, choices: list) -> str:
    """The right option's letter, from a 0-based label given as a number or as digits."""
    label = field(row, name)
    if not re.fullmatch(r"\d+", str(label)) or int(label) >= len(choices):
        hint = "; the benchmark hides the labels of its test set" if label in (None, "", -1) else ""
        last = len(choices) - 1
        raise BadInput(f"{row[0]}: {name!r} is {label!r}; expected an option's number from 0 to {last}{hint}")
    return letters(choices)[int(label)]


# Reading the letter


@own_reply
def extract(text: str, example: Example) -> str | None:
    """The option that a text chooses, or None if it chooses none or several.

    The last 'Answer: ...' that names an option counts; without one, the whole text. An option is named by its text, or
    by its letter where that is an answer (alone, in brackets, before '.', ')' or ':', after 'option') and not a word of
    a sentence. A copy of the list of options is not a choice.
    """
    # After a word, because '#' and '-' mark a heading or a bullet only at the start of a line.
    choices = [plain(f"A {choice}")[2:] for choice in example["choices"]]
    for part in statements(plain(text), short=False):
        said = lines(part)
        if len(said) == 1 and _several(said[0], choices) and not _same_text(said[0], choices):
            return None  # "A or B" and "none of these" choose none, whatever was said before
        found = _read(_without_echo(_affirmed(part), choices), choices)
        if found:
            return found
    return None


def _read(text: str, choices: list) -> str | None:
    said = lines(text)
    if not said:
        return None
    # Full texts come before letters: "C. difficile" can be an option, and "A only" begins with a letter.
    readers = (_same_text, _leading_text, _leading_letter, _named_letter)
    discussed = {line[1] for line in map(re.compile(rf"\(?([{letters(choices)}])[).:]\s+\S").match, said) if line}
    opening = said[:1] if len(discussed) < 2 else []
    found = next((letter for line in opening for read in readers if (letter := read(line, choices))), None)
    found = found or _last_line(said, choices) or _named_letter(text, choices)
    lettered = re.search(rf"\b[{letters(choices)}][).:]\s", text)
    return found if found or lettered else _contained_text(text, choices)


def _same_text(line: str, choices: list) -> str | None:
    said = squeeze(line)
    if said.upper() in line and said.upper() in letters(choices):
        return None  # 'C' is the requested letter, even if some option's text is 'C'
    same = [i for i, choice in enumerate(choices) if choice.strip() == line]
    same = same or [i for i, choice in enumerate(choices) if said and squeeze(choice) == said]
    return _single(same or [i for i, choice in enumerate(choices) if _bare(said) and _bare(choice) == _bare(said)])


def _bare(text: str) -> str:
    """A text without spaces and a sign of 'about' before it: '~ 3.2' and '3.2', 'kq^2 R/d' and 'k q^2 R / d'."""
    return re.sub(r"\s", "", squeeze(text)).lstrip("~\u2248")


def _leading_text(line: str, choices: list) -> str | None:
    """The option whose text opens a line and is set off there: 'No. They are ...', 'Likely no'; not 'No. 5', 'No one'."""
    opening = re.compile(r"[^\w\-]*(?:\w+ly\s+)?(.+?)[\"')\]]*(?:$|[.,;:!](?!\s*\d))").match(line)
    same = [
        i
        for i, choice in enumerate(choices)
        if re.search(r"[^\W\d_]{2}", choice) and opening and squeeze(choice) == squeeze(opening[1])
    ]
    return _single(same)


def _leading_letter(line: str, choices: list) -> str | None:
    """The letter that opens a line: 'B', '(B) Paris', 'B: Paris', 'B Paris', 'B because ...'; not 'A company ...'."""
    match = re.match(
        rf"[^\w]*+(?:\d{{1,2}}[.)]\s+)?(?:{_SURELY}\s+)?(?:option |choice )?"
        rf"[\"'(\[]*([{letters(choices)}])([)\].:,;\"']*)(?![\w'/])",
        line,
        re.IGNORECASE,
    )
    if not match:
        return None
    letter, rest = match[1].upper(), line[match.end() :].strip()
    bare = "" if re.search(r"[.):\]]", match[2]) else "?"
    if re.match(rf"(?:(?:and|or|&|,|/)\s*){bare}[(\"']*[{letters(choices)}](?![\w'])", rest):
        return None
    own = choices[ord(letter) - ord("A")].strip().casefold()
    reason = re.match(r"[-\u2013\u2014=(]|because|since|is (?:the )?(?:correct|right|best)", rest)
    set_off = match[2] or reason or not rest
    return letter if set_off or (own and rest.casefold().startswith(own)) else None


def _named_letter(text: str, choices: list) -> str | None:
    """The one letter that prose marks as an option: 'option B', 'I choose B', 'B is correct', 'so B', 'it is B', '(B)'."""
    one = f"([{letters(choices)}])"
    marks = (
        rf"\b(?i:option|choice|letter|answer|choose|select|pick|go with)\s+(?:(?:is|-)\s+)?[(\"']*{one}(?![\w'])(?!\s+[a-z])",
        rf"\b(?i:(?:it|that|this)(?:'s|\s+is|\s+must\s+be|\s+would\s+be))\s+(?i:{_SURELY}\s+)?[(\"']*{one}(?=\W*$|[.,;:)](?:\s|$))",
        rf"(?:^|[\s,;])(?i:so|therefore|thus|hence|but)\b,?\s+[(\"']*{one}(?=\W*$|[.,;:)](?:\s|$))",
        rf"\b{one}(?:[)\"']+\s+[^.,;()]{{1,60}}|[)\"']*)\s+is\s+(?:the\s+)?(?:correct|right|best)\b",
        rf"\bis:?\s+{one}[).:]\s",
        rf"[(\[]{one}[)\]]",
    )
    named = (set(re.findall(mark, text)) for mark in marks)
    return next((found.pop() for found in named if len(found) == 1), None)


def _several(line: str, choices: list) -> bool:
    """Whether a line lists options, or denies them all, and says nothing else: 'A or B', '(D) attic or (E) cupboard', 'none of these'."""
    if re.match(r"none of (?:the|these|them)\b", line, re.IGNORECASE):
        return True
    label = "|".join(
        rf"[\"'(]*{letter}(?![\w'])[\"')]*(?:\s*{re.escape(choice.strip())})?"
        for letter, choice in zip(letters(choices), choices, strict=True)
    )
    return bool(
        re.fullmatch(
            rf"(?:either|both)?\s*(?:{label})(?:(?:[\s,/&]|\bor\b|\band\b)+(?:{label}))+",
            line.strip(" ."),
            re.IGNORECASE,
        )
    )


_SURELY = r"(?:definitely|certainly|clearly|surely|probably|most likely|likely)"


def _affirmed(text: str) -> str:
    """The text without the letters that it denies: 'not A but B'."""
    return re.sub(r"(?:\bnot|n't)\s+(?:option\s+)?[(\"']*[A-Z](?![\w'])[)\"']*", " ", text)


def _last_line(said: list[str], choices: list) -> str | None:
    """A letter alone on the last line, after the reasoning, or the one that a last line names which begins 'Therefore, ...'."""
    alone = re.fullmatch(rf"\W*([{letters(choices)}])\W*", said[-1])
    concluded = re.match(
        r"(?:therefore|thus|hence|so|overall|based on|given|considering|in conclusion)\b", said[-1], re.IGNORECASE
    )
    named = _named_letter(said[-1], choices) if concluded else _leading_text(said[-1], choices)
    return alone[1] if alone else named


def _without_echo(text: str, choices: list) -> str:
    """The text without a copy of the list of options: at least two of them in order; the last may be cut off."""
    start = end = count = 0
    for letter, choice in zip(letters(choices), choices, strict=True):
        option = r"\s+".join(map(re.escape, choice.strip(" .").split()))
        label = re.compile(rf"\s*\(?\b{letter}[).:][\s.]*", re.IGNORECASE)
        opening = label.search(text) if count == 0 else label.match(text, end)
        whole = opening and re.compile(option + r"(?:\s?[.,;])*(?!\w)", re.IGNORECASE).match(text, opening.end())
        cut = opening and count and squeeze(choice).startswith(squeeze(text[opening.end() :]))
        if not (whole or cut):
            break
        if opening and not count:
            start = opening.start()
        end, count = whole.end() if whole else len(text), count + 1
    return f"{text[:start]}\n{text[end:]}" if count > 1 else text


def _contained_text(text: str, choices: list) -> str | None:
    """The one option whose text the answer contains, or that begins with the answer (cut off by the token budget)."""
    said, texts = squeeze(text), [squeeze(choice) for choice in choices]
    if any(len(option) <= 2 and option.isalpha() for option in texts):
        return None  # "no" occurs in any sentence, so "yes" cannot be told from it
    held = [i for i, option in enumerate(texts) if _holds(said, option)]
    longest = [i for i in held if not any(texts[i] != texts[j] and texts[i] in texts[j] for j in held)]
    if held:
        return _single(longest)
    return _single([i for i, option in enumerate(texts) if len(said) >= 8 and option.startswith(said)])


def _holds(said: str, option: str) -> bool:
    # Digits and very short words occur in any sentence.
    telling = len(option) > 2 and re.search(r"[^\W\d]", option)
    return bool(telling and re.search(rf"(?<!\w){re.escape(option)}(?!\w)", said))


def _single(places: list[int]) -> str | None:
    return chr(ord("A") + places[0]) if len(places) == 1 else None
