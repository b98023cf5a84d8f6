"""The entries of config/datasets: rows in the published layout, through the prompts step that Snakemake runs."""

import json

import pytest
from conftest import ROOT
from test_any_data import shipped, written

from orce import stages, tasks
from orce.__main__ import main
from orce.config import settings
from orce.config.schema import Split

FOUR = {"opa": "Iron", "opb": "Zinc", "opc": "Lead", "opd": "Gold"}
OPTIONS = {"text": ["a lake", "a bank", "a shop"], "label": ["A", "B", "C"]}
MATH = {"solution": "...", "subject": "Algebra", "level": 1}
# Three rows of each set in its published columns, and what each asks: (question, right answers).
ROWS = {
    "gpqa": [
        {"Record ID": f"rec{i}", "Question": f"Which is compound {i}?", "Correct Answer": right, "Incorrect Answer 1": "2",
         "Incorrect Answer 2": "B", "Incorrect Answer 3": "1-butanol", "Explanation": "...", "Subdomain": "Chemistry"}
        for i, right in enumerate(["1", "A", "3"])
    ],
    "sciq": [
        {"question": f"What is made of {i}?", "distractor3": "salt", "distractor1": "1", "distractor2": "air", "correct_answer": right,
         "support": ["", "Cheese is made of milk.", ""][i]} for i, right in enumerate(["milk", "0", "D"])
    ],
    "medmcqa": [
        {"id": f"m{i}", "question": f"Which metal is deficient in case {i}?", **FOUR, "cop": i, "choice_type": "single", "exp": None,
         "subject_name": "Medicine", "topic_name": None} for i in range(3)
    ],
    "piqa": [
        {"goal": f"Clean lens {i}", "sol1": "Use a soft cloth.", "sol2": "Use a stone.", "label": label}
        for i, label in enumerate([0, 1, 0])
    ],
    "winogrande": [
        {"sentence": f"Case {i} did not fit the bag because the _ was too small.", "option1": "case", "option2": "bag", "answer": answer}
        for i, answer in enumerate("212")
    ],
    "hellaswag": [
        {"ind": i, "activity_label": "Roof", "ctx_a": "A man sits.", "ctx_b": "he", "ctx": f"Man {i} sits on a roof. he",
         "endings": ["sings.", "is a tile.", "removes tiles.", "holds 2."], "source_id": "x", "split": "val", "split_type": "indomain",
         "label": label} for i, label in enumerate("203")
    ],
    "commonsenseqa": [
        {"id": f"c{i}", "question": f"Where is fish {i}?", "question_concept": "fish", "choices": OPTIONS, "answerKey": key}
        for i, key in enumerate("ABC")
    ],
    "qa-wikidata": [
        {"context": f"The country of city {i} is", "continuation": right} for i, right in enumerate(["Russia", "Côte d'Ivoire", "3"])
    ],
    "openbookqa": [
        {"id": f"o{i}", "question_stem": f"Water {i} stands in", "choices": OPTIONS, "answerKey": key} for i, key in enumerate("CAB")
    ],
    "boolq": [
        {"question": f"is city {i} in peru", "answer": answer, "passage": f"City {i} lies in South America."}
        for i, answer in enumerate([True, False, True])
    ],
    "popqa": [
        {"id": 100 + i, "subj": f"Person {i}", "prop": "occupation", "obj": "politician", "s_pop": 142, "question": f"What is {i}'s occupation?",
         "possible_answers": json.dumps(answers)} for i, answers in enumerate([["politician", "pol"], ["1984"], ["Ödön, \"the\" poet"]])
    ],
    "squad": [
        {"id": f"s{i}", "title": "Super_Bowl", "context": "Denver beat Carolina 24-10.", "question": f"Who won game {i}?",
         "answers": {"text": texts, "answer_start": [0] * len(texts)}} for i, texts in enumerate([["Denver", "Denver"], ["24-10"], ["Carolina"]])
    ],
    "math500": [
        {"problem": f"What is ${i}/2$?", "answer": answer, "unique_id": f"test/algebra/{i}.json", **MATH}
        for i, answer in enumerate(["0", "\\frac{1}{2}", "1"])
    ],
    "truthfulqa": [
        {"question": f"What happens at {i}?", "mc1_targets": {"choices": ["Nothing", "Luck", "1"], "labels": [1, 0, 0]},
         "mc2_targets": {"choices": ["Nothing", "It rains", "Luck"], "labels": [1, 1, 0]}} for i in range(3)
    ],
    "triviaqa": [
        {"question_id": f"tc_{i}", "question": f"Who wrote book {i}?", "question_source": "x", "entity_pages": {"title": []},
         "search_results": {"title": []}, "answer": {"aliases": [f"The Author {i}", f"A. {i}"], "normalized_aliases": [f"author {i}"],
         "value": f"Author {i}", "type": "WikipediaEntity", "normalized_value": f"author {i}"}} for i in range(3)
    ],
    "gsm8k": [
        {"question": f"Tom has {i} apples and buys 1,000. How many?", "answer": f"He has {i}+1000=<<{i}+1000={1000 + i}>>.\n#### 1,00{i}"}
        for i in range(3)
    ],
    "strategyqa": [
        {"qid": f"q{i}", "term": "Sea", "description": "water", "question": f"Can {i} ships sail?", "answer": i % 2 == 0,
         "facts": ["It is wet."], "decomposition": ["Is it?"]} for i in range(3)
    ],
    "arc": [
        {"id": f"M{i}", "question": f"Which is star {i}?", "choices": {"text": ["Sun", "Moon", "Mars"], "label": labels}, "answerKey": labels[i]}
        for i, labels in enumerate([["A", "B", "C"], ["1", "2", "3"], ["A", "B", "C"]])
    ],
    "simpleqa": [
        {"metadata": "{'topic': 'x', 'urls': ['y']}", "problem": f"Who won prize {i}, and\nwhen?", "answer": f"Winner, {i}"} for i in range(3)
    ],
}  # fmt: skip
RIGHT = {
    "gpqa": ["1", "A", "3"],
    "sciq": ["milk", "0", "D"],
    "medmcqa": ["Iron", "Zinc", "Lead"],
    "piqa": ["Use a soft cloth.", "Use a stone.", "Use a soft cloth."],
    "winogrande": ["bag", "case", "bag"],
    "hellaswag": ["removes tiles.", "sings.", "holds 2."],
    "commonsenseqa": ["a lake", "a bank", "a shop"],
    "openbookqa": ["a shop", "a lake", "a bank"],
    "boolq": ["Yes", "No", "Yes"],
    "popqa": [["politician", "pol"], ["1984"], ['Ödön, "the" poet']],
    "qa-wikidata": [["Russia"], ["Côte d'Ivoire"], ["3"]],
    "squad": [["Denver"], ["24-10"], ["Carolina"]],
    "math500": [["0"], ["\\frac{1}{2}"], ["1"]],
    "truthfulqa": ["Nothing"] * 3,
    "triviaqa": [[f"Author {i}", f"The Author {i}", f"A. {i}"] for i in range(3)],
    "gsm8k": [["1,000"], ["1,001"], ["1,002"]],
    "strategyqa": ["Yes", "No", "Yes"],
    "arc": ["Sun", "Moon", "Mars"],
    "simpleqa": [["Winner, 0"], ["Winner, 1"], ["Winner, 2"]],
}
SHUFFLED = ("gpqa", "sciq", "truthfulqa")
ASKED = {"gpqa": "Question", "piqa": "goal", "winogrande": "sentence", "hellaswag": "ctx", "openbookqa": "question_stem", "math500": "problem", "qa-wikidata": "context", "simpleqa": "problem"}  # fmt: skip
SHOWN = {
    "gpqa": {"2", "B", "1-butanol"}, "sciq": {"1", "air", "salt"}, "medmcqa": set(FOUR.values()),
    "piqa": {"Use a soft cloth.", "Use a stone."}, "winogrande": {"case", "bag"},
    "hellaswag": set(ROWS["hellaswag"][0]["endings"]), "commonsenseqa": set(OPTIONS["text"]),
    "openbookqa": set(OPTIONS["text"]), "boolq": {"Yes", "No"}, "strategyqa": {"Yes", "No"},
    "arc": {"Sun", "Moon", "Mars"}, "truthfulqa": {"Nothing", "Luck", "1"},
}  # fmt: skip


def prompts(name, rows, folder, kind="parquet") -> tuple[int, list[dict]]:
    """Exit code of the prompts step on the rows, with the settings that the entry gives it, and the examples it froze."""
    config = shipped(name)
    origin = config.datasets[name].splits["test"].origin
    written(folder / f"{origin}.{kind}", rows)
    config.datasets[name].source, config.datasets[name].splits = {"path": str(folder)}, {"test": Split(origin=origin)}
    out = folder / "prompts.jsonl"
    options = settings.to_argument(stages.of("prompts", config, name))
    code = main(["prompts", "--settings", options, "--split", "test", "--out", str(out), "--manifest", str(folder / "m.json")])  # fmt: skip
    return code, [json.loads(line) for line in out.read_text().splitlines()] if code == 0 else []


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("kind", ["parquet", "jsonl", "json"])
def test_rows_as_published_give_their_question_options_and_right_answer(name, kind, tmp_path):
    code, examples = prompts(name, ROWS[name], tmp_path, kind)
    assert code == 0 and len(examples) == 3
    task = tasks.get(shipped(name).datasets[name].task)
    for row, example, right in zip(ROWS[name], examples, RIGHT[name], strict=True):
        assert example["question"].startswith(row[ASKED.get(name, "question")])
        assert task.question(example) in task.prompt(example)[-1]["content"]
        if example["choices"] is None:
            assert example["reference"] == right
        else:
            assert set(example["choices"]) == SHOWN[name] | {right}
            assert example["choices"]["ABCDE".index(example["reference"])] == right
        answer = example["reference"] if example["choices"] else right[0]
        assert task.score(task.extract(answer, example), example) == {"correct": True, "f1": None}
        assert task.score(None, example)["correct"] is False
        assert task.display(None, example) == "(no answer)" and task.display(answer, example)
    if name in ("squad", "boolq"):
        assert [one["context"] for one in examples] == [row.get("context", row.get("passage")) for row in ROWS[name]]


@pytest.mark.parametrize("name", SHUFFLED)
def test_options_that_are_published_right_one_first_are_shuffled(name, tmp_path):
    rows = ROWS[name] * 5
    rows = [row | {"Record ID": str(i)} for i, row in enumerate(rows)] if name == "gpqa" else rows
    _, examples = prompts(name, rows, tmp_path)
    assert len({example["reference"] for example in examples}) > 1
    assert prompts(name, rows, tmp_path)[1] == examples


@pytest.mark.parametrize(("name", "kind"), [("simpleqa", "csv"), ("gsm8k", "tsv")])
def test_tables_of_text_are_read_too(name, kind, tmp_path):
    _, examples = prompts(name, ROWS[name], tmp_path, kind)
    assert [example["reference"] for example in examples] == RIGHT[name]
    assert [example["question"] for example in examples] == [row[ASKED.get(name, "question")] for row in ROWS[name]]


def test_a_line_that_says_what_is_asked_stands_between_the_text_and_the_options(tmp_path):
    _, examples = prompts("winogrande", ROWS["winogrande"], tmp_path)
    assert examples[0]["question"].endswith("too small.\nWhich option fills the blank (_)?")


@pytest.mark.parametrize(("name", "wrong", "message"), [
    ("gpqa", {"Correct Answer": None}, "'Correct Answer' is None; expected a text"),
    ("sciq", {"correct_answer": " "}, "'correct_answer' is ' '; expected a text"),
    ("medmcqa", {"cop": -1}, "'cop' is -1; expected a number from 0 to 3 (an option's position); the benchmark hides the labels"),
    ("medmcqa", {"cop": 4}, "'cop' is 4; expected a number from 0 to 3 (an option's position); if positions count from 1"),
    ("piqa", {"label": -1}, "'label' is -1; expected 0 or 1 (an option's position); the benchmark hides the labels"),
    ("winogrande", {"answer": ""}, "'answer' is ''; expected a number from 1 to 2 (an option's position); the benchmark hides"),
    ("winogrande", {"answer": "0"}, "'answer' is '0'; expected a number from 1 to 2"),
    ("hellaswag", {"label": ""}, "'label' is ''; expected a number from 0 to 3 (an option's position); the benchmark hides"),
    ("commonsenseqa", {"answerKey": ""}, "'answerKey' is ''; expected A, B, C of its options; the benchmark hides the labels"),
    ("openbookqa", {"answerKey": "D"}, "'answerKey' is 'D'; expected A, B, C of its options"),
    ("boolq", {"answer": None}, "'answer' is None; expected"),
    ("popqa", {"possible_answers": "[]"}, "possible_answers is empty; give the accepted answer, or leave the row out"),
    ("qa-wikidata", {"continuation": " "}, "continuation is empty; give the accepted answer, or leave the row out"),
    ("squad", {"answers": {"text": [], "answer_start": []}}, "answers.text is empty; give the accepted answer, or leave the row out"),
    ("math500", {"answer": ""}, "answer is empty; give the accepted answer, or leave the row out"),
    ("truthfulqa", {"mc1_targets": {"choices": ["x", "y", "z"], "labels": [1, 1, 0]}}, "'mc1_targets.labels' is [1, 1, 0]; expected"),
])  # fmt: skip
def test_a_wrong_label_is_refused_in_one_line_that_names_its_row(name, wrong, message, tmp_path, capsys):
    rows = [*ROWS[name][:2], ROWS[name][2] | wrong]
    code, _ = prompts(name, rows, tmp_path, "jsonl")
    said = capsys.readouterr().err.strip().splitlines()
    assert code == 2 and f"line 3: {message}" in said[-1] and len(said) == 1


def test_every_ready_entry_has_published_rows_in_a_test():
    entries = {path.stem for path in (ROOT / "config" / "datasets").glob("*.yaml")}
    assert entries == ROWS.keys()
