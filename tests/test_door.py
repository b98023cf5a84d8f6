"""The front door: `orce.confidence` and `orce measure` against the workflow, a server, and what people get wrong."""

import csv
import json
import re
import sys

import numpy as np
import pytest
import yaml
from conftest import ROOT, cases, own_config, program
from test_any_data import written
from test_apis import Api, vllm
from test_workflow import snakemake

import orce
from orce.__main__ import main
from orce.artefacts import files
from orce.errors import BadInput

TOWNS = [{"id": f"q{i}", "question": f"Where is {i}?", "reference": [f"Town {i}", f"town of {i}"]} for i in range(60)]
SETTINGS = {"topk": {"k": 2, "max_tokens": 6}, "linguistic": {"max_tokens": 4}, "vanilla": {"constrained": True}}
METHODS = [
    "likelihood", "sequence_probability", "p_true", "semantic_entropy", "agreement", "consistency", "lexical_similarity",
    "num_sets", "eigv", "degree", "eccentricity", "kle", "vanilla", "topk", "linguistic",
]  # fmt: skip


@pytest.mark.slow
def test_the_numbers_are_those_of_the_workflow_to_the_last_bit(tiny, tmp_path):
    written(tmp_path / "towns.jsonl", TOWNS)
    names = {"id": "id", "question": "question", "answer": "reference"}
    dataset = {"task": "qa", "source": {"path": "towns.jsonl"}, "fields": names}
    config = own_config(
        "towns", dataset, {"tiny": {"label": "Tiny", "source": {"path": tiny}}}, METHODS, methods=SETTINGS,
        engine={"name": "transformers", "batch_tokens": 2000}, answers={"samples": 3, "max_tokens": 6, "chunk": 32},
        confidence={"chunk": 32},
    )  # fmt: skip
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    cell = "results/towns/tiny"
    snakemake("--cores", "1", "--", *(f"{cell}/{name}/confidences.jsonl" for name in METHODS), folder=tmp_path)
    table = orce.confidence(
        tiny, tmp_path / "towns.jsonl", METHODS, settings=SETTINGS, samples=3, max_tokens=6, device="cpu", chunk=32,
        batch_tokens=2000,
    )  # fmt: skip
    for method in METHODS:
        stated = files.read_jsonl(tmp_path / cell / method / "confidences.jsonl")
        assert [one["id"] for one in stated] == [one["id"] for one in table]
        assert [one["confidence"] for one in stated] == table.confidence(method), method
        assert [one["correct"] for one in stated] == table.correct(method), method
    assert len({*table.confidence(METHODS[0])}) > 50, "numbers that differ between questions are compared"


def test_a_server_answers_and_gives_its_token_probabilities_or_is_named(direct):
    with Api(vllm) as server:
        options = {"server_model": "m", "samples": 3, "seed": 1}
        table = orce.confidence(server.address, TOWNS[:6], ["likelihood", "agreement"], **options)
    assert table.confidence("likelihood") == [pytest.approx(2.718281828459045**-0.5)] * 6
    assert table.correct("likelihood") == [i % 2 == 1 for i in range(6)], "as the server answers"
    with Api(silent) as server, pytest.raises(BadInput, match="the server gave none; leave out the row"):
        orce.confidence(server.address, TOWNS[:2], ["likelihood"], server_model="m")


def silent(body, headers):
    status, reply = vllm(body, headers)
    for choice in reply["choices"]:
        choice.pop("logprobs", None)
    return status, reply


PARIS = {"question": "What is the capital of France?", "answers": ["Paris", "Paris.", "Lyon"], "reference": "Paris"}
WRONG = dict(cases("door"))


@pytest.mark.parametrize("words", WRONG)
def test_what_cannot_be_done_is_one_line(words, tiny):
    with pytest.raises(BadInput) as error:
        orce.confidence(**{"model": tiny, "questions": ["Where?"]} | WRONG[words])
    assert words in str(error.value) and "\n" not in str(error.value)


def test_given_answers_are_measured_from_a_csv_and_into_one(tiny, tmp_path, capsys):
    rows = [PARIS | {"id": "a"}, PARIS | {"id": "b", "answers": ["Lyon", "Nice", "Paris"]}]
    rows += [PARIS | {"id": f"c{i}", "answers": ["Paris", "Lyon", "Lyon"]} for i in range(4)]
    with open(tmp_path / "q.csv", "w", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]))
        writer.writeheader()
        writer.writerows([one | {"answers": json.dumps(one["answers"])} for one in rows])
    out = tmp_path / "scored.jsonl"
    asked = [
        "measure", str(tmp_path / "q.csv"), "--model", tiny, "--methods", "agreement,consistency", "--out", str(out),
    ]  # fmt: skip
    assert main(asked) == 0
    said = capsys.readouterr()
    assert "agreement: accuracy 0.8333" in said.err and "What is the capital of France?" in said.out
    scored = files.read_jsonl(out)
    assert scored[0]["confidence"] == {"agreement": 2 / 3, "consistency": 2 / 3} and scored[0]["correct"]
    assert scored[2]["correct"] and not scored[2]["own"]["consistency"]["correct"]
    assert main([*asked[:-1], str(tmp_path / "scored.csv")]) == 0
    with open(tmp_path / "scored.csv") as handle:
        line = list(csv.DictReader(handle))[2]
    assert (line["correct"], line["consistency_correct"], line["agreement"]) == ("True", "False", str(1 / 3))


def test_given_answers_need_no_model_and_labels_may_be_numpys():
    """A file of answers and a column of judgements, as pandas and numpy have them."""
    asked = [["Yes, it is", "Yes"], ["No", "b"]]
    table = orce.confidence(None, ["Is it?", "Or not?"], ["agreement"], answers=asked, labels=["yes", "no"])
    assert table.metrics()["agreement"]["n"] == 2
    judged = orce.confidence(None, ["Is it?"], ["agreement"], answers=[{"answers": ["a", "a"], "greedy": "a"}], labels=np.array(["a"]))  # fmt: skip
    assert judged.correct("agreement") == [True]


@pytest.mark.parametrize(("words", "correct", "last", "call"), cases("sentences"))
def test_sentences_and_fitted_rows_need_no_configuration(words, correct, last, call):
    """words: what the printed table ends with; last: the confidences of the last row."""
    table = orce.confidence(None, **call)
    assert repr(table).endswith(words) and [line["correct"] for line in table] == correct
    assert [*table[-1]["confidence"].values()] == pytest.approx(last, abs=0.001)


def test_the_columns_of_a_file_of_another_program_are_named(tmp_path, capsys):
    rows = [{"doc": {"q": f"Is it {i}?"}, "resps": [["Yes", "yes", "No"]], "target": "Yes"} for i in range(4)]
    files.write_jsonl(tmp_path / "rows.jsonl", rows)
    named = {"question": "doc.q", "answers": "resps.0", "reference": "target"}
    table = orce.confidence(None, tmp_path / "rows.jsonl", ["agreement"], fields=named)
    assert table.correct("agreement") == [True] * 4 and table.confidence("agreement") == [2 / 3] * 4
    options = [str(tmp_path / "rows.jsonl"), "--fields", *(f"{name}={column}" for name, column in named.items())]
    measured = ["measure", *options, "--model", "", "--methods", "agreement", "--out", str(tmp_path / "out.jsonl")]
    assert main(measured) == 0 and files.read_jsonl(tmp_path / "out.jsonl") == table.records
    measured[2:4] = ["--fields", "question=doc.a"]
    assert main(measured) == 2 and "no column 'a' in doc, which fields.question names; columns in doc are q" in capsys.readouterr().err  # fmt: skip


def test_without_labels_nothing_is_called_right_or_wrong(tiny, tmp_path):
    table = orce.confidence(tiny, ["Where?"], ["agreement"], answers=[["here", "Here", "there"]])
    assert table.confidence("agreement") == [2 / 3] and "correct" not in table[0]
    with pytest.raises(BadInput, match="no labels"):
        table.metrics()


@pytest.mark.slow
def test_a_folder_keeps_what_is_finished(tiny, tmp_path, monkeypatch):
    def measure():
        options = {"max_tokens": 4, "device": "cpu", "batch_tokens": 1000}
        return orce.confidence(tiny, TOWNS[:4], ["likelihood"], folder=tmp_path, **options)

    first = measure()
    from orce.llm import language_model

    monkeypatch.setattr(language_model, "load", None)  # no weights are loaded again
    assert measure().records == first.records


NUMBER = re.compile(r"\d\.\d+")


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, orce; print({'torch', 'numpy', 'transformers'} & set(sys.modules))"
    assert program(sys.executable, "-c", code, check=True).stdout == "set()\n"


@pytest.mark.slow
def test_the_block_on_the_first_page_runs_as_it_stands(smollm2, tmp_path):
    block = (ROOT / "README.md").read_text().partition("```python\n")[2]
    code, shown = block.split("```\n\n```text\n")[:2]
    (tmp_path / "results" / "models").mkdir(parents=True)
    (tmp_path / "results" / "models" / "smollm2").symlink_to(smollm2)
    done = program(sys.executable, "-c", code, cwd=tmp_path, check=True)
    expected, printed = shown.partition("```")[0].splitlines(), done.stdout.splitlines()
    for line, real in zip(expected, printed[: len(expected)], strict=True):
        assert NUMBER.sub("#", real) == NUMBER.sub("#", line)
        # The last digits of a processor may turn one sample, which p_true shows the model: .840 on an EPYC, .852 on a Xeon.
        assert [*map(float, NUMBER.findall(real))] == pytest.approx([*map(float, NUMBER.findall(line))], abs=0.02)
