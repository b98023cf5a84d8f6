"""Which answer a data set calls right: labels that could mean the opposite are refused, and so are cells that would be
misread. Rows are in the schemas in which the sets are published."""

import json
import re

import pytest
import yaml
from conftest import ROOT
from dry_run import called, snakemake

from orce import __main__ as steps
from orce import stages
from orce.config import check as configuration
from orce.config import load, settings
from orce.config.schema import Config
from orce.errors import BadInput

# StrategyQA in BIG-bench's layout.
BIG_BENCH = [
    {"input": "Was Jean Valjean imprisoned due to hunger?", "target": "Yes. He stole bread.", "target_scores": {"Yes": 1, "No": 0}},
    {"input": "Can the Great Depression be treated with Prozac?", "target": "No. It is no illness.", "target_scores": {"Yes": 0, "No": 1}},
    {"input": "Would a pear sink in water?", "target": "No. Its density is 0.6.", "target_scores": {"Yes": 0, "No": 1}},
]  # fmt: skip
BOOLQ = [{"question": f"is {i} even", "passage": "Numbers.", "answer": 1 - i % 2} for i in range(3)]
PIQA = [{"goal": f"Boil {i} eggs", "sol1": "In water.", "sol2": "In sand.", "label": 0} for i in range(3)]
ANN = {"option1": "Ann", "option2": "Eve"}
WINOGRANDE = [
    {"sentence": f"Ann met Eve {i} times, as _ was lonely.", **ANN, "answer": str(1 + i % 2)} for i in range(3)
]
VITAMINS = {"question": "Which vitamin?", "opa": "A", "opb": "B12", "opc": "C", "opd": "K"}
MEDMCQA = [{"id": f"m{i}", **VITAMINS, "cop": i} for i in range(3)]
SCIQ = [
    {"question": f"What is {i}?", "distractor3": "gas", "distractor1": "3", "distractor2": "2", "correct_answer": "1",
     "support": "" if i else "A text."} for i in range(3)
]  # fmt: skip
MMLU_COLUMNS = "question,A,B,C,D,answer\nWhy?,this,that,both,none,C\nHow?,so,thus,well,,A\n"
OCCUPATION = {"question": "What is X's occupation?", "possible_answers": '["politician", "political leader"]'}
POPQA = [{"id": i} | OCCUPATION for i in range(3)]
TWO = {"options": ["Yes", "No"]}


def jsonl(rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def csv(*lines) -> str:
    return "".join(f"{line}\n" for line in lines)


def dataset(task, name, fields, **more) -> dict:
    splits = {"test": {"from": "test"}}
    return {"task": task, "source": {"path": f"data/{name}"}, "splits": splits, "fields": fields} | more


@pytest.fixture(autouse=True)
def data(folder):
    (folder / "data").mkdir()


def configured(mine: dict) -> Config:
    config = load.mapping(ROOT / "config.yaml")
    config["datasets"]["mine"] = mine
    return configuration.check(config)


def asked(folder, mine: dict, content: str | bytes) -> tuple[int, str, list[dict]]:
    """(exit code, log, examples) of the configuration's check and then `orce prompts`, on one file."""
    path = folder / mine["source"]["path"]
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    chosen = settings.to_argument(stages.of("prompts", configured(mine), "mine"))
    out = ["--out", "out/test.jsonl", "--manifest", "out/test.manifest.json"]
    code, said = called(steps.main, ["prompts", "--settings", chosen, "--split", "test", *out])
    made = folder / "out" / "test.jsonl"
    return code, said, [json.loads(line) for line in made.read_text().splitlines()] if made.exists() else []


def right(example: dict) -> str:
    return example["choices"]["ABCDEF".index(example["reference"])] if example["choices"] else example["reference"]


STRATEGYQA = {"question": "input", "answer": "target_scores"}
COLUMNS = {"question": "question", "choices": ["A", "B", "C", "D"], "answer": "answer"}
ACCEPTED = {
    "big-bench's target_scores, options given": (
        dataset("choice", "t.jsonl", STRATEGYQA, **TWO), jsonl(BIG_BENCH), ["Yes", "No", "No"]),
    "big-bench's target_scores name the options": (
        dataset("choice", "t.jsonl", STRATEGYQA | {"choices": "target_scores"}), jsonl(BIG_BENCH), ["Yes", "No", "No"]),
    "a mapping in a CSV cell": (
        dataset("choice", "t.csv", {"question": "q", "answer": "a"}, **TWO),
        csv("q,a", '?,"{""Yes"": 0, ""No"": 1}"'), ["No"]),
    "0 and 1 that are explained": (
        dataset("choice", "t.jsonl", STRATEGYQA | {"answer": "target_scores.Yes"}, **TWO, answer_is={0: "No", 1: "Yes"}),
        jsonl(BIG_BENCH), ["Yes", "No", "No"]),
    "0 and 1 in a CSV file, explained": (
        dataset("choice", "t.csv", {"question": "q", "answer": "a"}, **TWO, answer_is={0: "No", 1: "Yes"}),
        csv("q,a", "?,1", "??,0"), ["Yes", "No"]),
    "true and false over other words, explained": (
        dataset("choice", "t.jsonl", {"question": "q", "answer": "a"}, options=["fake", "real"], answer_is={True: "real", False: "fake"}),
        jsonl([{"q": "?", "a": True}, {"q": "??", "a": False}]), ["real", "fake"]),
    "0 and 1 as positions, if it is said": (
        dataset("choice", "t.jsonl", STRATEGYQA | {"answer": "target_scores.No"}, **TWO, answer_is="index"),
        jsonl(BIG_BENCH), ["Yes", "No", "No"]),
    "true and false over yes and no": (
        dataset("choice", "t.jsonl", {"question": "q", "answer": "a"}, **TWO),
        jsonl([{"q": "?", "a": True}, {"q": "??", "a": "false"}]), ["Yes", "No"]),
    "PIQA, whose two options differ from question to question": (
        dataset("choice", "t.jsonl", {"question": "goal", "choices": ["sol1", "sol2"], "answer": "label"}), jsonl(PIQA), ["In water."] * 3),
    "WinoGrande, counted from 1": (
        dataset("choice", "t.jsonl", {"question": "sentence", "choices": ["option1", "option2"], "answer": "answer"}, answer_is="index from 1"),
        jsonl(WINOGRANDE), ["Ann", "Eve", "Ann"]),
    "MedMCQA": (
        dataset("choice", "t.jsonl", {"id": "id", "question": "question", "choices": ["opa", "opb", "opc", "opd"], "answer": "cop"}),
        jsonl(MEDMCQA), ["A", "B12", "C"]),
    "SciQ, whose right answer has a column of its own and whose passage may be empty": (
        dataset("choice", "t.jsonl", {"question": "question", "answer": "correct_answer", "context": "support",
                "choices": ["correct_answer", "distractor1", "distractor2", "distractor3"]}, answer_is="text", shuffle=True),
        jsonl(SCIQ), ["1"] * 3),
    "letters of columns, and a question with fewer options": (
        dataset("choice", "t.csv", COLUMNS), MMLU_COLUMNS, ["both", "so"]),
    "the name of the right column": (
        dataset("choice", "t.csv", {"question": "question", "choices": ["right", "wrong"], "answer": "key"}),
        csv("question,wrong,right,key", "?,no,yes sir,right"), ["yes sir"]),
    "PopQA's lists in a text column": (
        dataset("qa", "t.jsonl", {"question": "question", "answer": "possible_answers"}), jsonl(POPQA), [["politician", "political leader"]] * 3),
    "a JSON list in a CSV cell": (
        dataset("qa", "t.csv", {"question": "q", "answer": "a"}), csv("q,a", '?,"[""a"",""b""]"', '??,"[0, 1]"'), [["a", "b"], ["[0, 1]"]]),
    "nan, where a list says that it is meant": (
        dataset("qa", "t.jsonl", {"question": "q", "answer": "a"}), jsonl([{"q": "0/0 in Python?", "a": ["nan"]}]), [["nan"]]),
    "a mark of the byte order": (
        dataset("qa", "t.jsonl", {"question": "q", "answer": "a"}), b"\xef\xbb\xbf" + jsonl([{"q": "?", "a": "x"}]).encode(), [["x"]]),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_published_layout_has_its_own_right_answers(name, folder):
    mine, content, expected = ACCEPTED[name]
    code, said, examples = asked(folder, mine, content)
    assert code == 0, said
    assert [right(example) for example in examples] == expected


def refused(message, mine, content):
    return pytest.param(mine, content, message, id=message[:60])


QA = {"question": "q", "answer": "a"}
CHOICE = {"question": "q", "choices": "c", "answer": "a"}
REFUSED = [
    refused(r"data/t.jsonl, line 1: 'target_scores.Yes' is 1, and the options are Yes, No; say which of them it is: "
            r'answer_is: \{0: "No", 1: "Yes"\}, or answer_is: index if 0 is the first, Yes',
            dataset("choice", "t.jsonl", STRATEGYQA | {"answer": "target_scores.Yes"}, **TWO), jsonl(BIG_BENCH)),
    refused(r"data/t.csv, line 2: 'a' is '0', and the options are True, False; say which",
            dataset("choice", "t.csv", QA, options=["True", "False"]), csv("q,a", "?,0")),
    refused(r"line 1: 'answer' is 1, and the options are entailed, not entailed; say which of them it is: answer_is: \{0: OPTION, 1: OPTION\}",
            dataset("choice", "t.jsonl", {"question": "question", "answer": "answer"}, options=["entailed", "not entailed"]), jsonl(BOOLQ)),
    refused(r"line 1: 'a' is True, and the options are fake, real; say which of them it is: answer_is: \{false: OPTION, true: OPTION\}$",
            dataset("choice", "t.jsonl", QA, options=["fake", "real"]), jsonl([{"q": "?", "a": True}])),
    refused(r"line 1: 'a' is 1, and the options are no, yes; say which of them it is",
            dataset("choice", "t.jsonl", CHOICE), jsonl([{"q": "?", "c": ["no", "yes"], "a": 1}])),
    refused(r"'target_scores' is \{'Yes': 1, 'No': 1\}; expected 1 for the one right option, and 0 for the others",
            dataset("choice", "t.jsonl", STRATEGYQA, **TWO), jsonl([BIG_BENCH[0] | {"target_scores": {"Yes": 1, "No": 1}}])),
    refused(r"'target_scores' is \{'Yes': 0.5, 'No': 0.5\}; expected 1 for the one right option",
            dataset("choice", "t.jsonl", STRATEGYQA, **TWO), jsonl([BIG_BENCH[0] | {"target_scores": {"Yes": 0.5, "No": 0.5}}])),
    refused(r"'target_scores' is \{'Yes': '1', 'No': 0\}; expected 1 for the one right option",
            dataset("choice", "t.jsonl", STRATEGYQA, **TWO), jsonl([BIG_BENCH[0] | {"target_scores": {"Yes": "1", "No": 0}}])),
    refused(r"'target_scores' is \{'True': 1, 'False': 0\}; expected 0 or 1 for each of the options Yes, No",
            dataset("choice", "t.jsonl", STRATEGYQA, **TWO), jsonl([BIG_BENCH[0] | {"target_scores": {"True": 1, "False": 0}}])),
    refused(r"data/t.jsonl, line 2: 'answer' is '2'; expected 0 or 1 \(an option's position\), a letter or a text of its options; "
            r"if positions count from 1, say so \(answer_is: index from 1\)",
            dataset("choice", "t.jsonl", {"question": "sentence", "choices": ["option1", "option2"], "answer": "answer"}), jsonl(WINOGRANDE)),
    refused(r"data/t.jsonl, line 2: 'a' is 3; expected a number from 0 to 2 \(an option's position\), .*count from 1, say so",
            dataset("choice", "t.jsonl", CHOICE), jsonl([{"q": f"{i}?", "c": ["x", "y", "z"], "a": i} for i in (1, 3)])),
    refused(r"'a' is 0; expected a number from 1 to 2 \(an option's position\)",
            dataset("choice", "t.jsonl", CHOICE, answer_is="index from 1"), jsonl([{"q": "?", "c": ["x", "y"], "a": 0}])),
    refused(r"'a' is 'maybe'; expected 0 or 1, which answer_is explains",
            dataset("choice", "t.jsonl", QA, **TWO, answer_is={0: "No", 1: "Yes"}), jsonl([{"q": "?", "a": "maybe"}])),
    refused(r"data/t.csv, line 2: 'B' is 'nan', which stands for a missing value",
            dataset("choice", "t.csv", COLUMNS), csv("question,A,B,C,D,answer", "?,x,nan,y,z,A")),
    refused(r"line 2: 'A, B, C, D' is \['x'\]; expected a list of at least two option texts",
            dataset("choice", "t.csv", COLUMNS), csv("question,A,B,C,D,answer", "?,x,,,,A")),
    refused(r"data/t.csv, line 3: a holds '3,5'; a comma separates thousands \(1,200\), and a point the decimals \(3.5\)",
            dataset("qa", "t.csv", QA, equality="numeric"), csv("q,a", '?,"1,200"', '??,"3,5"')),
    refused(r"data/t.csv, line 2: 'a' is 'nan', which stands for a missing value; fill it in, or leave the row out; \[\"nan\"\] is the word itself",
            dataset("qa", "t.csv", QA), csv("q,a", "?,nan")),
    refused(r"data/t.jsonl, line 1: 'a' is nan, a missing value; fill it in, or leave the row out",
            dataset("qa", "t.jsonl", QA), '{"q": "?", "a": NaN}\n'),
    refused(r"line 1: 'a' holds nan; expected a text, a number or a list", dataset("qa", "t.jsonl", QA), '{"q": "?", "a": ["x", NaN]}\n'),
    refused(r"line 1: 'a' holds \{'value': 'x'\}; expected a text, a number or a list of them \(a part of a record is named with a dot: a.NAME\)",
            dataset("qa", "t.jsonl", QA), jsonl([{"q": "?", "a": {"value": "x"}}])),
    refused(r"data/t.csv: the column 'a' stands twice; rename or delete one of them",
            dataset("qa", "t.csv", QA), csv("q,a,a", "?,x,y")),
    refused(r"data/t.jsonl, line 2: the key 'a' stands twice in one object; keep one of them",
            dataset("qa", "t.jsonl", QA), '{"q": "?", "a": "x"}\n{"q": "?", "a": "x", "a": "y"}\n'),
    refused(r"data/t.json: the key 'a' stands twice in one object; keep one of them",
            dataset("qa", "t.json", QA), '[{"q": "?", "a": "x", "a": "y"}]'),
    refused(r"data/t.csv, line 2: no column 'answer', which fields.answer names; did you mean 'Answer'\? columns are Question, Answer",
            dataset("qa", "t.csv", {"question": "Question", "answer": "answer"}), csv("Question,Answer", "?,x")),
]  # fmt: skip


@pytest.mark.parametrize(("mine", "content", "message"), REFUSED)
def test_what_could_mean_the_opposite_or_would_be_misread_is_refused_in_one_line(mine, content, message, folder):
    code, said, examples = asked(folder, mine, content)
    assert code == 2 and examples == []
    assert re.search(message, said) and len(said.splitlines()) == 1, said
    with pytest.raises(BadInput, match=f"config: datasets.mine: .*{message}"):  # the first rows, before anything runs
        configuration.rows(configured(mine))


def test_a_column_that_stands_twice_in_parquet_is_refused(folder):
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table([["?"], ["x"], ["y"]], names=["q", "a", "a"])
    pyarrow.parquet.write_table(table, folder / "data" / "t.parquet")
    with pytest.raises(BadInput, match=r"data/t.parquet: the column 'a' stands twice"):
        configuration.rows(configured(dataset("qa", "t.parquet", QA)))


@pytest.mark.parametrize(("more", "message"), [
    ({"answer_is": "position"}, r"datasets.mine.answer_is: 'position'; expected .*index from 1"),
    ({"answer_is": {0: "Nein", 1: "Yes"}}, r"datasets.mine.answer_is: 'Nein' is none of the options Yes, No"),
    ({"task": "qa", "answer_is": "text"}, r"datasets.mine.answer_is: a key of task choice, and not of qa"),
])  # fmt: skip
def test_answer_is_has_a_few_values(more, message):
    mine = dataset("choice", "t.jsonl", QA, **TWO) | more
    if mine["task"] == "qa":
        del mine["options"]
    with pytest.raises(BadInput, match=message):
        configured(mine)


def test_the_first_right_answer_is_told_in_words_by_the_log_and_a_dry_run(folder):
    mine, content, _ = ACCEPTED["big-bench's target_scores, options given"]
    said = asked(folder, mine, content)[1]
    assert said == '[prompts mine] test: the right answer to "Was Jean Valjean imprisoned due to hunger?" is "A. Yes"\n'
    said = asked(folder, *ACCEPTED["PopQA's lists in a text column"][:2])[1]
    first, second = said.splitlines()
    assert first.endswith('the right answer to "What is X\'s occupation?" is "politician or political leader"')
    assert second == "[prompts mine] test: 2 of 3 questions repeat an earlier one"
    (folder / "data" / "t.jsonl").write_text(jsonl(BIG_BENCH))
    (folder / "config.yaml").write_text((ROOT / "config.yaml").read_text())
    mine = dataset("choice", "t.jsonl", STRATEGYQA | {"answer": "target_scores.Yes"}, **TWO)
    (folder / "mine.yaml").write_text(yaml.safe_dump({"datasets": {"mine": mine}}))
    words = "--configfile", "mine.yaml", "--", "results/mine/prompts/test.jsonl"
    code, said = snakemake(folder, "--snakefile", str(ROOT / "Snakefile"), *words)
    assert code != 0
    expected = "config: datasets.mine: data/t.jsonl, line 1: 'target_scores.Yes' is 1, and the options are Yes, No; say"
    assert expected in said


@pytest.mark.parametrize(("name", "arguments"), [("config.yaml", []), ("mine.yaml", ["--configfile", "mine.yaml"])])
def test_a_key_that_stands_twice_in_the_configuration_is_told_with_its_lines(name, arguments, folder):
    (folder / "config.yaml").write_text((ROOT / "config.yaml").read_text())
    with open(folder / name, "a") as file:
        file.write("paper_tables: [mmlu]\nsft: {epochs: 2,\n  epochs: 3}\npaper_tables: [drop]\n")
    code, said = snakemake(folder, "--snakefile", str(ROOT / "Snakefile"), *arguments, "--", "paper_tables")
    assert code != 0
    assert f"{name}, line" in said and "not valid YAML: the key " in said and "already" in said


def test_merged_keys_may_be_overridden(folder):
    (folder / "m.yaml").write_text("deep: {er: {a: &a {<<: &base {k: 1, l: 2}, k: 3}}}\nb: {<<: *a, l: 5}\n")
    assert load.mapping("m.yaml") == {"deep": {"er": {"a": {"k": 3, "l": 2}}}, "b": {"k": 3, "l": 5}}
