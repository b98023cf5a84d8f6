"""Which answer a data set calls right: labels that could mean the opposite are refused, and so are cells that would be
misread. Rows are in the schemas in which the sets are published."""

import json
import re

import pytest
import yaml
from conftest import ROOT, cases, prompts_words
from dry_run import called, snakemake

from orce import __main__ as steps
from orce import stages
from orce.config import check as configuration
from orce.config import load
from orce.config.schema import Config
from orce.errors import BadInput

CASES = cases("labels")  # `mine`: the entry of the data set, in which pairs stand for a mapping of answer_is


def dataset(task, source, fields, answer_is=None, **more) -> dict:
    if answer_is:
        more["answer_is"] = answer_is if isinstance(answer_is, str) else dict(answer_is)
    splits = {"test": {"from": "test"}}
    return {"task": task, "source": {"path": source}, "splits": splits, "fields": fields} | more


@pytest.fixture(autouse=True)
def data(folder):
    (folder / "data").mkdir()


def configured(mine: dict) -> Config:
    config = load.mapping(ROOT / "config.yaml")
    config["datasets"]["mine"] = mine
    return configuration.check(config)


def asked(folder, mine: dict, content: str) -> tuple[int, str, list[dict]]:
    """(exit code, log, examples) of the configuration's check and then `orce prompts`, on one file."""
    (folder / mine["source"]["path"]).write_text(content, encoding="utf-8")
    made = folder / "out" / "test.jsonl"
    code, said = called(steps.main, prompts_words(stages.of("prompts", configured(mine), "mine"), made))
    return code, said, [json.loads(line) for line in made.read_text().splitlines()] if made.exists() else []


def right(example: dict) -> str:
    return example["choices"]["ABCDEF".index(example["reference"])] if example["choices"] else example["reference"]


ACCEPTED = {one["name"]: (dataset(**one["mine"]), one["content"], one["right"]) for one in CASES if "right" in one}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_published_layout_has_its_own_right_answers(name, folder):
    mine, content, expected = ACCEPTED[name]
    code, said, examples = asked(folder, mine, content)
    assert code == 0, said
    assert [right(example) for example in examples] == expected


REFUSED = [one for one in CASES if "message" in one]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["message"][:60])
def test_what_could_mean_the_opposite_or_would_be_misread_is_refused_in_one_line(case, folder):
    mine, message = dataset(**case["mine"]), case["message"]
    code, said, examples = asked(folder, mine, case["content"])
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
        configuration.rows(configured(dataset("qa", "data/t.parquet", {"question": "q", "answer": "a"})))


@pytest.mark.parametrize(("more", "message"), [
    ({"answer_is": "position"}, r"datasets.mine.answer_is: 'position'; expected .*index from 1"),
    ({"answer_is": {0: "Nein", 1: "Yes"}}, r"datasets.mine.answer_is: 'Nein' is not one of the options Yes, No"),
    ({"task": "qa", "options": None, "answer_is": "text"}, r"datasets.mine.answer_is: a key of task choice, and not of qa"),
])  # fmt: skip
def test_answer_is_has_a_few_values(more, message):
    mine = dataset("choice", "data/t.jsonl", {"question": "q", "answer": "a"}, options=["Yes", "No"]) | more
    with pytest.raises(BadInput, match=message):
        configured({key: value for key, value in mine.items() if value is not None})


def test_the_first_right_answer_is_told_in_words_by_the_log_and_a_dry_run(folder):
    said = asked(folder, *ACCEPTED["big-bench's target_scores, options given"][:2])[1]
    assert said == '[prompts mine] test: the right answer to "Was Jean Valjean imprisoned due to hunger?" is "A. Yes"\n'
    said = asked(folder, *ACCEPTED["PopQA's lists in a text column"][:2])[1]
    first, second = said.splitlines()
    assert first.endswith('the right answer to "What is X\'s occupation?" is "politician or political leader"')
    assert second == "[prompts mine] test: 2 of 3 questions repeat an earlier one"
    (folder / "data" / "t.jsonl").write_text(REFUSED[0]["content"])
    (folder / "config.yaml").write_text((ROOT / "config.yaml").read_text())
    (folder / "mine.yaml").write_text(yaml.safe_dump({"datasets": {"mine": dataset(**REFUSED[0]["mine"])}}))
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
