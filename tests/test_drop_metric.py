"""DROP's official metric: reference cases, and agreement with lm-evaluation-harness on thousands of generated ones."""

import importlib.util
import random
import zipfile

import pytest
import wheels

from orce.tasks import drop

HARNESS = "lm-eval==0.4.13"


def example(*references: list[str]) -> dict:
    return {"id": "x", "question": "?", "context": "p", "choices": None, "reference": list(references)}


@pytest.mark.parametrize(("answer", "reference", "exact", "f1"), [
    ("25%", ["25"], True, 1.0),
    ("$1,200", ["1200"], True, 1.0),
    ("-5", ["5"], True, 1.0),  # the sign is lost at the hyphen: the official rule
    ("3", ["three"], False, 0.0),
    ("12 yards", ["12"], False, 0.67),
    ("12 yards", ["13 yards"], False, 0.0),
    ("March 8, 1917", ["8 March 1917"], False, 1.0),
    ("the Bears", ["Bears"], True, 1.0),
    ("Tom Brady", ["Peyton Manning", "Tom Brady"], False, 0.5),
    ("3.50", ["3.5"], True, 1.0),
    ("twenty-one", ["twenty one"], True, 1.0),
])  # fmt: skip
def test_reference_cases(answer, reference, exact, f1):
    assert drop.score(answer, example(reference)) == {"correct": exact, "f1": f1}


def test_one_text_with_two_names_is_not_two_spans_to_the_metric_itself():
    assert drop.em_and_f1(["Peyton Manning, Tom Brady"], ["Peyton Manning", "Tom Brady"]) == (False, 0.33)


@pytest.mark.parametrize(
    "answer", ["Peyton Manning; Tom Brady", "Tom Brady; Peyton Manning", "Peyton Manning;Tom Brady;"]
)
def test_semicolons_separate_spans_in_any_order(answer):
    assert drop.score(answer, example(["Peyton Manning", "Tom Brady"])) == {"correct": True, "f1": 1.0}


@pytest.mark.parametrize("answer", ["Peyton Manning, Tom Brady", "Peyton Manning and Tom Brady"])
def test_a_list_in_prose_is_one_span_whatever_the_reference(answer):
    assert drop.score(answer, example([answer]))["correct"]
    assert not drop.score(answer, example(["Peyton Manning", "Tom Brady"]))["correct"]


def test_spans_are_kept_and_the_best_reference_counts_for_each_of_the_two_figures():
    assert drop.score("Trinidad and Tobago", example(["Trinidad and Tobago"]))["correct"]
    assert not drop.score("Trinidad and Tobago", example(["Trinidad"]))["correct"]
    assert drop.score("1,200", example(["1200"]))["correct"]
    assert drop.score("3; 4", example(["3"])) == {"correct": False, "f1": 0.5}
    assert drop.score("12 yards", example(["13"], ["12"], ["12 yards"])) == {"correct": True, "f1": 1.0}
    assert drop.score("12 yards", example(["13"], ["12"])) == {"correct": False, "f1": 0.67}
    assert drop.score(None, example(["3"])) == {"correct": False, "f1": 0.0}
    assert drop.score("3", example()) == {"correct": False, "f1": 0.0}
    assert drop.score("...", example(["3"])) == {"correct": False, "f1": 0.0}


def test_answers_that_mean_the_same_share_a_key():
    gold = example(["3"])
    same = [("The Bears", "bears"), ("25%", "25.0"), ("A; B b", "b B; a"), ("twenty-one", "twenty one")]
    assert all(drop.key(one, gold) == drop.key(other, gold) for one, other in same[:2] + same[3:])
    assert drop.key("Ann; Bob", gold) == drop.key("Bob; Ann", gold) != drop.key("Ann", gold)


def test_a_key_is_shared_exactly_where_the_metric_sees_an_exact_match():
    """Self-Consistency counts keys: what it counts as one answer is scored as one, whatever the reference."""
    seen = {True: 0, False: 0}
    for said, other in cases(3000, seed=5):
        same = drop.key("; ".join(said), example()) == drop.key("; ".join(other), example())
        assert same == drop.em_and_f1(said, other)[0], (said, other)
        seen[same] += 1
    assert min(seen.values()) > 300
    doubled, other = "Ann; Ann; Bob", "Ann; Bob; Bob"  # the metric compares sets and counts
    assert drop.key(doubled, example()) == drop.key(other, example()) != drop.key("Ann; Bob", example())


@pytest.fixture(scope="module")
def harness(tmp_path_factory, request):
    """lm_eval/tasks/drop/utils.py from the pinned wheel; kept in pytest's cache folder."""
    wheel = wheels.fetch(HARNESS, request.config.cache.mkdir("lm-eval"))
    path = tmp_path_factory.mktemp("lm_eval") / "drop_utils.py"
    path.write_bytes(zipfile.ZipFile(wheel).read("lm_eval/tasks/drop/utils.py"))
    spec = importlib.util.spec_from_file_location("lm_eval_drop_utils", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# fmt: off
WORDS = [
    "the", "a", "an", "Bears", "Tom", "Brady", "Jones,", "12", "13.5", "1,200", "25%", "$3", "-5", "3rd", "twenty-one",
    "yards", "and", "Manning,", "1990s", "U.S.", "O'Neil", "(two)", "field-goal", "08", "1e3", "nan", "inf.", "50-yard", "É", "Straße",
    ".", "-", "--", "theory", "0", "00", "+7", "7.", ".5", "½", "a-b",
]
# fmt: on


def spans(rng: random.Random) -> list[str]:
    return [" ".join(rng.choices(WORDS, k=rng.choice([1, 1, 2, 3, 4]))) for _ in range(rng.choice([1, 1, 1, 2, 3, 4]))]


def near(rng: random.Random, gold: list[str]) -> list[str]:
    """A prediction close to the reference: words dropped, case changed, spans shuffled, added or lost."""
    said = [" ".join(word for word in span.split(" ") if rng.random() > 0.15) or span for span in gold]
    said = [span.upper() if rng.random() < 0.2 else span for span in said]
    rng.shuffle(said)
    return said + spans(rng)[:1] if rng.random() < 0.2 else said[: max(1, len(said) - (rng.random() < 0.2))]


def cases(n: int, seed: int = 17):
    rng = random.Random(seed)
    for _ in range(n):
        gold = spans(rng)
        yield (near(rng, gold) if rng.random() < 0.7 else spans(rng)), gold


@pytest.mark.slow
def test_the_metric_agrees_with_the_harness_on_thousands_of_cases(harness):
    seen = {True: 0, False: 0}
    for said, gold in cases(4000):
        exact, f1 = harness.get_metrics(said, gold)
        assert drop.em_and_f1(said, gold) == (bool(exact), f1), (said, gold)
        seen[bool(exact)] += 1
    assert min(seen.values()) > 400


@pytest.mark.slow
def test_scores_of_answers_agree_with_the_harness_without_exception(harness):
    """Spans joined by ';', as the prompt asks for them, score what the harness gives the list of spans; a text without
    ';' scores what the harness gives the text."""
    several = 0
    for (said, gold), (_, other) in zip(cases(4000), cases(4000, seed=18), strict=True):
        theirs = harness.process_results({"answers": [tuple(gold), tuple(other)]}, said)
        expected = {"correct": bool(theirs["em"]), "f1": theirs["f1"]}
        assert drop.score("; ".join(said), example(gold, other)) == expected, (said, gold, other)
        prose = ", ".join(said)
        theirs = harness.process_results({"answers": [tuple(gold), tuple(other)]}, [prose])
        assert drop.score(prose, example(gold, other)) == {"correct": bool(theirs["em"]), "f1": theirs["f1"]}, prose
        several += len(said) > 1
    assert several > 1000


@pytest.mark.slow
def test_the_harness_reads_the_published_answers_as_we_do(harness):
    def published(number="", spans=(), day="", month="", year=""):
        return {"number": number, "spans": list(spans), "date": {"day": day, "month": month, "year": year}}

    records = [
        published(number="3"),
        published(spans=["Ann", "Bob"]),
        published(day="8", month="March", year="1917"),
        published(month="March", year="1917"),
        published(number="0", spans=["zero"]),
    ]
    for record in records:
        assert tuple(drop._spans("here", record)) == harness.parse_answer(record)
