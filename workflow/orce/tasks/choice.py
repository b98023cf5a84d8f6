"""Multiple choice from any data set: the configuration's `fields` say where question, options and
answer stand.

fields: question; answer; choices, unless the dataset gives `options`: a list of option texts, a
mapping of label to text or of option to 0 or 1, or several columns with an option each; and the
optional id, context and labels (the published names of the options). `answer_is` says how to read an
answer that could mean several options. Answers are letters, from 'A' to the last option's.
"""

import hashlib
import re
from collections.abc import Callable

from orce.artefacts.records import Example, Score
from orce.tasks import rows, sources
from orce.tasks.options import letters, with_letters
from orce.text import Read, rules
from orce.text.extract import LONGEST, to_number
from orce.text.marks import DENIED, WHOLE, lines, occurrences, own_reply, plain, squeeze, statements

ANSWER_KIND = "option letter"
MAX_TOKENS = 16
METRIC = "accuracy"
# {key of the configuration's `fields`: whether it is required}
FIELDS = {
    "question": True,
    "answer": True,
    "choices": False,
    "labels": False,
    "id": False,
    "context": False,
}
OPTIONS = ("options", "shuffle", "answer_is", "answer_pattern", "answer_marks", "ask")
# "not A", "anything but (A)".
_NOT_THIS = re.compile(
    r"(?i:\bnot|n't|\banything but|\bdoubt (?:that )?it(?:'s| is))\s+(?:option\s+)?[(\"']*[A-Z](?![\w'])[)\"']*"
)
# After an option's text: "Rome is wrong".
_WRONG = r"\W+(?:is|are|was|were)(?:n't| not| incorrect| wrong| false)\b"
# What a reply thinks of an option: its probability, or a tick. A bare number or word (_WORTH) counts
# only behind a sign.
_SHARE = r"\d{1,3}(?:\.\d+)?\s?%|\d{1,3}/\d{1,3}\b|[✓✔✗✘✅❌☑☒]"
_WORTH = r"[01]?\.\d+|(?i:(?:un)?likely|high|low|yes|no|true|false|(?:in)?correct|right|wrong)\b"
_HAS = r",?\s(?:has|with|at)\s[^.\n;A-Z]{0,30}?"
# The word I, where the ninth option has that letter: "I, as a physicist, ..."; not "I, because ...".
NINTH = 9
_PRONOUN = (
    r"(?<!\w)(?<!option )(?<!choice )(?<!letter )(?<!answer )(?<!is )(?<![(\[\"'])I(?!\W*{own})"
    r"(?=,(?!\s*(?:because|since)\b)|\s+[-\u2013\u2014=(]|\s+(?!(?:is|was|because|since|and|or|as)\b)[a-z])"
)
BESIDE = 100  # characters before and after an option's text in which a reply may deny it
_SURELY = r"(?:definitely|certainly|clearly|surely|probably|most likely|likely)"


def load(
    source: sources.DataSource, split: str, seed: int = 0, first: int | None = None
) -> list[Example]:
    """Examples of a split, or of its first rows. `source` has fields, options, shuffle, answer_is
    and ask (docs/extending.md) beside hub or path. Raises BadInput naming the row.
    """
    return rows.load_examples(source, split, first, lambda asked: example(asked, source, seed))


def example(asked: rows.Question, source: sources.DataSource, seed: int) -> Example:
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
    context = [example["context"], ""] if example["context"] else []
    lettered = [f"{letter}. {choice}" for letter, choice in with_letters(example["choices"])]
    return "\n".join([*context, example["question"], *lettered])


def prompt(example: Example, shots: int | None = None) -> list[dict]:
    """Zero-shot: the training questions of a benchmark train the methods, so none is shown."""
    return rows.zero_shot("choice", question(example), shots)


def extract(text: str, example: Example) -> str | None:
    """The letter of the option that a text chooses, or None. With an `answer_pattern` of the data
    set only what that finds is read.
    """
    return rows.read_by_own_form(text, example, lambda part: chosen(part, example))


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

PROSE = rules(surely=_SURELY)["prose"]


@own_reply
def chosen(text: str, example: Example) -> str | None:
    """The letter of the option that a text chooses, or None if it chooses none or several.

    The last 'Answer: ...' that names an option counts; without one, the whole text. An option is
    named by its text, or by its letter where that is an answer (alone, in brackets, before '.', ')'
    or ':', after 'option') and not a word of a sentence. A copy of the list of options is not a
    choice.
    """
    # An option stands after a word here: a '#' or '-' that begins it is no heading and no bullet.
    choices = [plain(f"A {choice}")[2:] for choice in example["choices"]]
    shown = plain(text)
    if letter := _same_text(shown, choices):
        return Read.of(letter, WHOLE, "same text")  # also where it speaks of a confidence
    before_cjk = rf"(?<![A-Za-z])([{letters(choices)}])(?=[\u3040-\u9fff\uac00-\ud7af])"  # Bです
    for statement in statements(re.sub(before_cjk, r"\1 ", shown), short=False):
        text_lines = lines(statement)
        if (
            len(text_lines) == 1
            and _lists_options(text_lines[0], choices)
            and not _same_text(text_lines[0], choices)
        ):
            return None  # "A or B" and "none of these" choose none, whatever came before
        # Letters that are denied do not count: "not A but B".
        said = _without_echo(_NOT_THIS.sub(" ", statement), choices)
        said = _without_values(said, choices)
        if len(choices) >= NINTH:
            own = re.escape(choices[NINTH - 1].strip()) or "(?!)"
            said = re.sub(_PRONOUN.format(own=own), "we", said)
        if letter := _letter_of(said, choices):
            return Read.of(letter, statement.by, letter.by)
    return None


def _without_values(text: str, choices: list) -> str:
    """The text without options that have a value each: 'A: 10%, B: 80%', 'A ✗ B ✓', '[ ] A [x] B',
    '- A' above '- B'. Such a text says what it thinks of several options, and which of them it
    chooses would be a guess. An option's own words are no value of it.
    """
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


def _letter_of(text: str, choices: list) -> Read | None:
    """The letter of an option, with the name of the form that names it."""
    text_lines = lines(text)
    if not text_lines:
        return None
    every = letters(choices)
    discussed = set()
    for line in text_lines:
        if option := re.match(rf"\(?([{every}])[).:]\s+\S", line):
            discussed.add(option[1])
    if len(discussed) < 2:
        # Full texts come before letters: "C. difficile" can be an option, and "A only" begins with
        # a letter.
        for read in (_same_text, _leading_text, _leading_letter, _named_letter):
            if letter := read(text_lines[0], choices):
                return letter
    # After the reasoning: a letter alone, or what a line like 'Therefore, ...' names.
    last_line = text_lines[-1]
    concluding = r"(?:therefore|thus|hence|so|overall|based on|given|considering|in conclusion)\b"
    if alone := re.fullmatch(rf"\W*([{every}])\W*", last_line):
        return Read.of(alone[1], "letter alone")
    read = _named_letter if re.match(concluding, last_line, re.IGNORECASE) else _leading_text
    if letter := read(last_line, choices) or _named_letter(text, choices):
        return letter
    if re.search(rf"\b[{every}][).:]\s", text):
        return None
    return _contained_text(text, choices)


def _same_text(line: str, choices: list) -> Read | None:
    """The option whose text is the line: exactly, as a number, or but for case, accents and spaces."""
    form = squeeze(line)
    if form.upper() in line and form.upper() in letters(choices):
        return None  # 'C' is the requested letter, even if some option's text is 'C'
    if exact := _options_with(line, choices, str.strip):
        return _only_letter(exact, "same text")
    if len(line) <= LONGEST and (value := to_number(line)):  # .50 is 0.5
        return _only_letter(_options_with(value, choices, to_number), "same number")
    same = _options_with(form, choices, squeeze)
    if not same and (bare := _without_spaces(form)):
        same = _options_with(bare, choices, _without_spaces)
    return _only_letter(same, "same text")


def _options_with(value: str, choices: list, form: Callable[[str], str | None]) -> list[int]:
    """The options whose text has a value in some form, such as squeeze, by number."""
    return [i for i, choice in enumerate(choices) if form(choice) == value]


def _without_spaces(text: str) -> str:
    """A text without its spaces and a sign of 'about' before it: '~ 3.2' is '3.2', and 'k q^2 R / d'
    is 'kq^2 R/d'.
    """
    return re.sub(r"\s", "", squeeze(text)).lstrip("~\u2248")


def _leading_text(line: str, choices: list) -> Read | None:
    """The option whose text opens a line and is set off there: 'No. They are ...', 'Likely no'; not
    'No. 5', 'No one'.
    """
    opening = re.match(r"[^\w\-]*+(?:\w+ly\s+)?(.+?)(?:$|[.,;:!](?!\s*\d))", line)
    if opening is None:
        return None
    same = _options_with(squeeze(opening[1].rstrip("\"')]")), choices, squeeze)
    worded = [i for i in same if re.search(r"[^\W\d_]{2}", choices[i])]
    return _only_letter(worded, "first text")


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
    # Another letter after it: "A and B"; after a bare one also "A B".
    joined = "(?:and|or|&|,|/)" if re.search(r"[.):\]]", match[2]) else "(?:and|or|&|,|/|)"
    if re.match(rf"{joined}\s*[(\"']*[{letters(choices)}](?![\w'])", rest):
        return None
    own = choices[ord(letter) - ord("A")].strip().casefold()
    reason = (
        r"[-\u2013\u2014=(]|because|since|is (?:the )?(?:correct|right|best)|です|だ|입니다|이다|है"
    )
    is_own = own and rest.casefold().startswith(own)
    is_chosen = match[2] or not rest or is_own or re.match(reason, rest)
    return Read.of(letter, "first letter") if is_chosen else None


def _named_letter(text: str, choices: list) -> Read | None:
    """The one letter that prose marks as an option: 'option B', 'I choose B', 'B is correct', 'so
    B', 'it is B', '(B)'.
    """
    for row in PROSE:
        matches = {*re.findall(row.pattern.replace("«letter»", f"([{letters(choices)}])"), text)}
        if len(matches) == 1:
            return Read.of(matches.pop(), row.name)
    return None


def _lists_options(line: str, choices: list) -> bool:
    """Whether a line lists options, or denies them all, and says nothing else: 'A or B', '(D) attic
    or (E) cupboard', 'none of these'.
    """
    if re.match(r"none of (?:the|these|them)\b", line, re.IGNORECASE):
        return True
    label = "|".join(
        rf"[\"'(]*{letter}(?![\w'])[\"')]*(?:\s*{re.escape(choice.strip())})?+"
        for letter, choice in with_letters(choices)
    )
    listed = rf"(?:either|both)?\s*(?:{label})(?:(?:[\s,/&]|\bor\b|\band\b)+(?:{label}))+"
    return re.fullmatch(listed, line.strip(" ."), re.IGNORECASE) is not None


def _without_echo(text: str, choices: list) -> str:
    """The text without a copy of the list of options: at least two of them in order; the last may
    be cut off.
    """
    start = end = count = 0
    for letter, choice in with_letters(choices):
        label = rf"\(?\b{letter}[).:][\s.]*"
        if count:
            opening = re.compile(rf"(?i)\s*{label}").match(text, end)
        else:
            opening = re.search(rf"(?i){label}", text)
            start = opening.start() if opening else 0
        if opening is None:
            break
        option = r"\s+".join(map(re.escape, choice.strip(" .").split()))
        words = re.compile(rf"(?i){option}(?:\s?[.,;])*(?:(?!\w)|(?<=\s))")
        if whole := words.match(text, opening.end()):
            end = whole.end()
        elif count and squeeze(choice).startswith(squeeze(text[opening.end() :])):
            end = len(text)  # cut off
        else:
            break
        count += 1
    return f"{text[:start]}\n{text[end:]}" if count > 1 else text


def _contained_text(text: str, choices: list) -> Read | None:
    """The one option whose text the answer contains, or that begins with the answer (cut off by the
    token budget).
    """
    form = squeeze(text)
    texts = [squeeze(choice) for choice in choices]
    if any(len(option) <= 2 and option.isalpha() for option in texts):
        return None  # "no" occurs in any sentence, so "yes" cannot be distinguished
    contained = []
    for i, option in enumerate(texts):
        if option in form and _affirms(option, form):
            contained.append(i)
    if contained:
        # Of "sky" and "blue sky" the longer one counts.
        longer = [texts[i] for i in contained]
        return _only_letter([i for i in contained if not _is_part(texts[i], longer)], "text in it")
    begun = [i for i, option in enumerate(texts) if option.startswith(form)]
    return _only_letter(begun, "beginning of a text") if len(form) >= 8 else None


def _is_part(option: str, others: list[str]) -> bool:
    return any(option != other and option in other for other in others)


def _affirms(option: str, form: str) -> bool:
    """Whether a text somewhere has an option as whole words, and does not deny it there."""
    if len(option) <= 2 or not re.search(r"[^\W\d]", option):
        return False  # digits and very short words occur in any sentence
    for start in occurrences(option, form):
        end = start + len(option)
        before = form[max(0, start - BESIDE) : start]
        after = form[end : end + BESIDE]
        if not re.search(rf"\w\Z|{DENIED}\Z", before) and not re.match(rf"\w|{_WRONG}", after):
            return True
    return False


def _only_letter(indices: list[int], form: str) -> Read | None:
    """The letter of the only option among some, read by a form; None for none or several."""
    return Read.of(chr(ord("A") + indices[0]), form) if len(indices) == 1 else None
