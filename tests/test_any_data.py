"""Data without code: the tasks qa and choice, by `fields`, on local files in published layouts; splits, seeds and worked examples."""

import csv
import json
import re
from collections import Counter

import pytest
import yaml
from conftest import ARITHMETIC, ROOT, WORLDFACTS, cases, program, prompts_words
from dry_run import called, snakemake
from msgspec.structs import replace
from small_matrix import SNAKEMAKE

from orce import stages, tasks
from orce.__main__ import main
from orce.artefacts import files
from orce.config import check as configuration
from orce.config import picking
from orce.config.check import read_config
from orce.errors import BadInput
from orce.runtime import process
from orce.runtime.process import seed_of
from orce.settings import load
from orce.settings.schema import Config, Split
from orce.settings.stage import Model, Source
from orce.stages import sample
from orce.stages.prompts import PromptsSettings as Prompts
from orce.stages.prompts import draw_split, split_slices
from orce.tasks.examples import find_overlaps


def written(path, rows):
    """The rows as a file of the kind that the path's ending says."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        with open(path, "w", newline="") as handle:
            writer = csv.DictWriter(handle, rows[0], dialect="excel-tab" if path.suffix == ".tsv" else "excel")
            writer.writeheader()
            writer.writerows(rows)
    return path


def shipped(name):
    """The dataset of a ready entry, checked with config.yaml, as --configfile would."""
    config = read_config([str(ROOT / "config.yaml"), str(ROOT / "config" / "datasets" / f"{name}.yaml")])
    assert config.paper_tables == [name] and config.tables[name].dataset == name
    return config


def qa(equality, *reference):
    asked = {"id": "1", "question": "?", "context": None, "choices": None}
    return asked | {"reference": [*reference], "equality": equality}


@pytest.mark.parametrize(("equality", "reference", "text", "right"), cases("equalities"))
def test_equalities(equality, reference, text, right):
    task, example = tasks.get("qa"), qa(equality, reference)
    assert task.score(task.extract(text, example), example)["correct"] is right


def test_answers_of_one_meaning_have_one_key():
    task = tasks.get("qa")
    assert task.key("The Beatles", qa("normalised", "x")) == task.key("beatles.", qa("normalised", "x"))
    assert task.key("1200.0", qa("numeric", "1")) == task.key("1,200", qa("numeric", "1"))
    assert task.key("Paris", qa("exact", "x")) != task.key("paris", qa("exact", "x"))


@pytest.mark.parametrize(("task", "more", "row", "message"), cases("fields"))
def test_a_field_that_is_not_there_or_holds_something_else_is_one_line(task, more, row, message, tmp_path):
    path = written(tmp_path / "test.jsonl", row if isinstance(row, list) else [row])
    fields = {"question": "q", "answer": "a"} | more.pop("fields", {})
    with pytest.raises(BadInput, match=message):
        tasks.get(task).load({"path": str(path), "fields": fields} | more, "test")


@pytest.mark.parametrize(("text", "message"), [
    ("q,a\nWho?,x\nWho, then?,y\n", "test.csv, line 3: not 2 cells, as the header has"),
    ("q;a\nWho, then?;x\n", "test.csv: semicolons between the cells; save it with commas"),
    ("q\ta\nWho, then?\tx\n", "test.csv: tabs between the cells; save it with commas"),
    ("q|a\nWho?|x\n", "test.csv: vertical bars between the cells; save it with commas"),
    ("q,a\nWho?,x\nThen", "test.csv, line 3: not 2 cells, as the header has; is the file cut off\\?"),
    ('q,a\nWho?,"x" y\n', 'test.csv, line 2: \',\' expected after \'"\'; a cell that begins with a quote ends with one'),
])  # fmt: skip
def test_a_csv_that_is_none_names_its_line_or_what_it_has_in_place_of_commas(text, message, tmp_path):
    (tmp_path / "test.csv").write_text(text)
    with pytest.raises(BadInput, match=message):
        tasks.get("qa").load({"path": str(tmp_path), "fields": {"question": "q", "answer": "a"}}, "test")


@pytest.mark.parametrize(
    ("second", "said"),
    [("x", "1 of 2 questions repeat an earlier one"),
     ("y", "1 of 2 questions repeat an earlier one, 1 of them with another right answer, as 'test-0' and 'test-1'")],
)  # fmt: skip
def test_questions_that_stand_twice_are_counted_where_the_prompts_are_made(second, said, tmp_path, monkeypatch, capfd):
    """A file with a line for each accepted answer would call most right answers wrong."""
    monkeypatch.chdir(tmp_path)
    source = {"path": str(written(tmp_path / "d.jsonl", [{"q": "Who?", "a": "x"}, {"q": "Who? ", "a": second}]))}
    config = shipped("simpleqa")
    config.datasets["simpleqa"].source, config.datasets["simpleqa"].splits = source, {"test": {"from": "test"}}
    config.datasets["simpleqa"].fields = {"question": "q", "answer": "a"}
    process.tally("were counted before the command", 1, 1)
    assert main(prompts_words(stages.pick_settings("prompts", config, "simpleqa"), "p.jsonl")) == 0
    assert capfd.readouterr().err.strip().endswith(f"[prompts simpleqa] test: {said}")


@pytest.mark.parametrize(("message", "mine"), cases("bad_datasets"))
def test_what_the_configuration_says_wrongly_is_told_before_anything_runs(message, mine):
    given = {"source": {"path": "data/t.jsonl"}, "splits": {"test": {"from": "test"}}} | mine
    given["task"] = {"arithmetic": ARITHMETIC}.get(mine["task"], mine["task"])
    config = load.read_mapping(ROOT / "config.yaml")
    config["datasets"]["mine"] = explained(given)
    row = {"dataset": "mine", "models": ["llama3-8b"], "methods": ["vanilla"]}
    config["tables"]["mine"] = {"kind": "main", **row}
    with pytest.raises(BadInput, match=message):
        configuration.check(config)


NO_MODEL = Model(source=Source(), dtype="float32", device="cpu")


def test_splits_of_one_source_share_nothing_and_leave_nothing_and_keep_its_order(tmp_path):
    written(tmp_path / "all.jsonl", [{"q": f"{i}?", "a": str(i), "id": str(i)} for i in range(20)])
    source = {"path": str(tmp_path), "fields": {"question": "q", "answer": "a", "id": "id"}}
    sizes = {"sft": "1/3", "rl": 5, "test": None}
    splits = {name: Split(origin="all", size=size) for name, size in sizes.items()}

    def drawn(seed):
        of_data = {"dataset": "mine", "task": "qa", "source": source, "splits": splits}
        options = Prompts(**of_data, tests=[], seed=seed)
        return [[int(one["id"]) for one in draw_split(options, split)] for split in splits]

    parts = drawn(0)
    assert [len(part) for part in parts] == [6, 5, 9]
    assert Counter(parts[0] + parts[1] + parts[2]) == Counter(range(20))
    assert parts == [sorted(part) for part in parts]
    assert parts == drawn(0) != drawn(1)


def test_a_seed_is_that_of_all_its_names_and_a_share_is_rounded_down():
    def part(size, n):
        return split_slices({"sft": Split(origin="train", size=size)}, "train", n)["sft"].stop

    assert [part("1/3", n) for n in (3, 4, 5, 6)] == [1, 1, 1, 2]
    assert part("2/3", 5) == 3
    named = [("ab", "c"), ("a", "bc"), ("abc",), ("c", "ab"), ()]
    assert len({seed_of(base, *names) for base in (1, 11) for names in named}) == 10
    assert seed_of(1, "1") != seed_of(11)
    assert all(0 <= seed_of(7, *names) < 2**63 for names in named)
    # The first eight bytes of sha256("7" 0x1f "answers" 0x1f "q1"), less the last bit.
    assert seed_of(7, "answers", "q1") == 0xC28B83108A4374F


class Engine:
    """Says the seed that it was given."""

    def generate(self, prompts, n, temperature, max_tokens, seeds, top_p=1.0):
        return [[str(seed)] * n for seed in seeds]


def test_each_question_is_sampled_with_a_seed_of_its_own_whatever_is_sampled_beside_it():
    named = {"task": "qa", "label": "x", "engine": "none", "model": NO_MODEL}
    settings = sample.SampleSettings(shots=None, seed=3, samples=1, temperature=1.0, max_tokens=8, top_p=1.0, **named)
    examples = [("rl", qa("exact", "1") | {"id": str(i)}) for i in range(4)]
    together = [one.raw for one in sample.sample_chunk(examples, Engine(), settings)]
    alone = [sample.sample_chunk([one], Engine(), settings)[0].raw for one in reversed(examples)]
    assert together == alone[::-1] and len({text for (text,) in together}) == 4


QA = tasks.get("qa")
ROWS = [{"context": f"The capital of land {i} is", "continuation": f"City {i}"} for i in range(40)]


def chosen(**changes):
    config = shipped("qa-wikidata")
    for key, value in changes.items():
        setattr(config.datasets["qa-wikidata"], key, value)
    return config


def frozen(config, split, folder, rows=ROWS):
    """What the prompts step wrote."""
    written(folder / "test.jsonl", rows)
    options = stages.pick_settings("prompts", config, "qa-wikidata")
    options.source["path"] = str(folder)
    out = folder / f"{split}-prompts.jsonl"
    assert main(prompts_words(options, out, split)) == 0
    return files.read_jsonl(out)


WITH_SHOTS = {split: {"from": "test", "size": size} for split, size in (("shots", 3), ("sft", 10), ("test", 20))}


def test_worked_examples_are_turns_before_the_question_in_no_other_split_and_as_few_as_a_model_may_see(tmp_path):
    config = chosen(splits=WITH_SHOTS)
    examples = frozen(config, "test", tmp_path)
    worked = examples[0]["worked"]
    assert len(worked) == 3 and all(one["worked"] == worked for one in examples)
    *shown, last = QA.prompt(examples[0])
    assert [turn["role"] for turn in shown] == ["user", "assistant"] * 3
    assert shown[0]["content"].startswith("Answer the question.")
    assert shown[2]["content"] == worked[1][0]
    assert "\n".join(worked[0]).endswith(shown[1]["content"])
    assert last["content"] == examples[0]["question"]
    assert "Complete the sentence." in last["content"]
    asked = [one["question"] for one in [*examples, *frozen(config, "sft", tmp_path)]]
    assert len(set(asked)) == 30 and not {question for question, _ in worked} & set(asked)
    assert picking.sampled_splits(config, "qa-wikidata", "llama3-8b") == ["sft", "test"]
    bare = {key: value for key, value in examples[0].items() if key != "worked"}
    assert len(QA.prompt(examples[0], 2)) == 5 and QA.prompt(examples[0], 0) == QA.prompt(bare)
    for shots, here, there in ((4, examples[0], 3), (1, bare, 0)):
        with pytest.raises(BadInput, match=f"shots is {shots}; expected a number from 0 to {there}"):
            QA.prompt(here, shots)


def test_without_the_key_there_are_no_worked_examples(tmp_path):
    example = item("test-0", "Why?", "It rains.") | {"reference": ["x"]}
    told = "Answer the question. Reply with only the answer, as short as possible."
    asked = f"{told}\n\nPassage: It rains.\n\nQuestion: Why?"
    assert QA.prompt(example) == [{"role": "user", "content": asked}]
    config = chosen(splits={"test": {"from": "test", "size": 20}})
    assert all("worked" not in one for one in frozen(config, "test", tmp_path))


PASSAGE = (
    "Every editor of the journal reads each submission twice, once for its argument and once for its style, and the "
    "board meets on the first Monday of the month to decide which of the submissions will be sent out for review."
)


def item(id, question, context=None, choices=None):
    return {"id": id, "question": question, "context": context, "choices": choices, "reference": "A"}


OPTIONS = ["one thing", "another"]
OTHER = "The museum opens at nine, and its guides speak three languages, though not at weekends."


@pytest.mark.parametrize(("one", "other", "kind", "contained"), [
    (("Which?", PASSAGE, OPTIONS), ("which", PASSAGE.upper(), OPTIONS[::-1]), "exact", (1, 1)),
    (("Which?", PASSAGE.replace("Monday", "Friday")), ("Which?", PASSAGE), "near", (0.8, 0.99)),
    (("", PASSAGE + " It has done so since it was founded."), ("", PASSAGE), "near", (0.8, 1)),
    (("Which?", OTHER), ("Which?", PASSAGE), None, None),
    (("What is 3 * 4?",), ("What is 3 + 4?",), None, None),
    (("What is the capital of Peru?",), ("What is the capital of Chile?",), None, None),
])  # fmt: skip
def test_passages_are_compared_by_words_and_short_texts_by_every_sign(one, other, kind, contained):
    found = find_overlaps([item("t", *one)], [item("e", *other)])
    named = [(match.train, match.test, match.kind) for match in found]
    assert named == ([("t", "e", kind)] if kind else [])
    assert all(contained[0] <= match.containment <= contained[1] for match in found)


def passage(i: int) -> str:
    return " ".join(f"word{i}x{j}" for j in range(30))


def write_reclor_like(folder, name, passages):
    asked = {"question": "Which follows?", "answers": ["w", "x", "y", "z"], "label": 0}
    rows = [{"context": c, "id_string": f"{name}_{i}"} | asked for i, c in enumerate(passages)]
    written(folder / f"{name}.json", rows)


def reclor_like(folder, **size) -> Prompts:
    splits = {"sft": Split(origin="train", **size), "test": Split(origin="val")}
    return Prompts(dataset="d", task="reclor", source={"path": str(folder)}, seed=0, splits=splits, tests=[])


def test_overlap_is_removed_where_the_config_says_so_and_leaves_a_size_room(tmp_path):
    passages = [*map(passage, range(8))]
    write_reclor_like(tmp_path, "train", passages[:6])
    write_reclor_like(tmp_path, "val", [passages[2], passages[7]])
    cut = reclor_like(tmp_path)
    assert len(draw_split(cut, "sft")) == 6
    kept = draw_split(replace(cut, tests=[cut]), "sft")
    assert len(kept) == 5 and passages[2] not in [example["context"] for example in kept]
    cut = reclor_like(tmp_path, size=6)
    message = (
        r"datasets.d.splits.sft: size 6 after 0 examples taken by other splits, but the source split 'train' has 5, "
        r"1 that overlap with a test set left out; give a share \(size: 1/3\), or null for what is left"
    )
    with pytest.raises(BadInput, match=message):
        draw_split(replace(cut, tests=[cut]), "sft")


@pytest.mark.parametrize(("task", "one", "other", "same"), [
    (ARITHMETIC, "What is 3 + 5?", "What is 5 + 3?", True),
    (ARITHMETIC, "What is 8 - 3?", "What is 3 + 5?", True),
    (ARITHMETIC, "What is 3 * 5?", "What is 5 * 3?", True),
    (ARITHMETIC, "What is 3 * 5?", "What is 3 + 5?", False),
    (WORLDFACTS, "What is the capital of Peru?", "Which country has the capital Lima?", True),
    (WORLDFACTS, "What is the capital of Peru?", "Which continent is Peru in?", False),
])  # fmt: skip
def test_twins_ask_the_same(task, one, other, same):
    module = tasks.get(task)
    every = [example for split in ("train", "validation", "test") for example in module.load({}, split)]
    known = {example["question"]: example for example in every}
    found = find_overlaps([known.get(one) or item(one, one)], [known.get(other) or item(other, other)], task=module)
    assert [match.kind for match in found] == (["twin"] if same else [])


def write_logiqa(folder, name, places):
    """A LogiQA file whose passages have a number each; equal numbers are equal questions."""
    asked = {"question": "Which follows?", "options": ["w", "x", "y", "z"]}
    rows = [{"id": i, "text": passage(i), "answer": i % 4} | asked for i in places]
    written(folder / f"{name}.jsonl", rows).rename(folder / f"{name}.txt")


@pytest.mark.slow
def test_overlaps_are_removed_by_the_workflow_and_the_splits_take_what_is_left(tmp_path):
    """The shipped LogiQA entry with remove_overlap: true, over files of which 6 of 30 stand in a test set."""
    data = tmp_path / "data"
    data.mkdir()
    write_logiqa(data, "train", range(30))
    write_logiqa(data, "test", [*range(4), *range(100, 106)])
    write_reclor_like(data, "val", map(passage, (4, 5, 200)))
    logiqa = {"source": {"path": "data"}, "remove_overlap": True}
    over = {"datasets": {"logiqa": logiqa, "reclor": {"source": {"path": "data"}}}}
    (tmp_path / "config.yaml").write_text((ROOT / "config.yaml").read_text())
    (tmp_path / "over.yaml").write_text(yaml.safe_dump(over))
    prompts = [f"results/logiqa/prompts/{split}.jsonl" for split in ("sft", "rl")]
    words = ["--cores", "2", "--configfile", "over.yaml", "--", *prompts, "results/logiqa/overlap.json"]
    done = program(*SNAKEMAKE, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    frozen = [files.read_jsonl(tmp_path / path) for path in prompts]
    assert [len(examples) for examples in frozen] == [8, 16]
    drawn = [int(example["id"].removeprefix("train-")) for examples in frozen for example in examples]
    assert len(drawn) == len(set(drawn)) and not set(drawn) & set(range(6))
    for report in files.read_json(tmp_path / "results/logiqa/overlap.json").values():
        assert (report["exact"], report["near"]) == (0, 0)


def test_removal_reads_the_test_sets_of_the_data_and_of_those_trained_on_it():
    config = load.read_mapping(ROOT / "config.yaml")
    config["datasets"]["logiqa"] |= {"remove_overlap": True}
    checked = configuration.check(config)
    tests = stages.pick_settings("prompts", checked, "logiqa").tests
    assert [one.dataset for one in tests] == ["logiqa", "reclor"]
    assert stages.pick_settings("prompts", checked, "mmlu").tests == []


# The entries of config/datasets: rows in the published layout, through the prompts step that Snakemake runs. Of each set three rows
# in its published columns, their right answers, the column of the question and what else is shown.
READY = {one["name"]: one for one in cases("ready_datasets")}


def frozen_rows(name, rows, folder, kind="parquet") -> tuple[int, list[dict]]:
    """Exit code of the prompts step on the rows, with the settings that the entry gives it, and the examples it froze."""
    config = shipped(name)
    origin = config.datasets[name].splits["test"].origin
    written(folder / f"{origin}.{kind}", rows)
    config.datasets[name].source, config.datasets[name].splits = {"path": str(folder)}, {"test": Split(origin=origin)}
    out = folder / "prompts.jsonl"
    code = main(prompts_words(stages.pick_settings("prompts", config, name), out))
    return code, files.read_jsonl(out) if code == 0 else []


@pytest.mark.parametrize("name", READY)
def test_rows_as_published_give_their_question_options_and_right_answer(name, tmp_path):
    code, examples = frozen_rows(name, READY[name]["rows"], tmp_path)
    assert code == 0 and len(examples) == 3
    task = tasks.get(shipped(name).datasets[name].task)
    for row, example, right in zip(READY[name]["rows"], examples, READY[name]["right"], strict=True):
        assert example["question"].startswith(row[READY[name]["asked"]])
        assert task.question(example) in task.prompt(example)[-1]["content"]
        if example["choices"] is None:
            assert example["reference"] == right
        else:
            assert set(example["choices"]) == {*READY[name]["shown"], right}
            assert example["choices"]["ABCDE".index(example["reference"])] == right
        answer = example["reference"] if example["choices"] else right[0]
        assert task.score(task.extract(answer, example), example) == {"correct": True, "f1": None}
        assert task.score(None, example)["correct"] is False
        assert task.display(None, example) == "(no answer)" and task.display(answer, example)
    if name in ("squad", "boolq"):
        contexts = [row.get("context", row.get("passage")) for row in READY[name]["rows"]]
        assert [one["context"] for one in examples] == contexts
    if name == "winogrande":  # what is asked stands between the text and the options
        assert examples[0]["question"].endswith("too small.\nWhich option fills the blank (_)?")


@pytest.mark.parametrize("name", ["gpqa", "sciq", "truthfulqa"])
def test_options_that_are_published_right_one_first_are_shuffled(name, tmp_path):
    rows = READY[name]["rows"] * 5
    rows = [row | {"Record ID": str(i)} for i, row in enumerate(rows)] if name == "gpqa" else rows
    _, examples = frozen_rows(name, rows, tmp_path)
    assert len({example["reference"] for example in examples}) > 1
    assert frozen_rows(name, rows, tmp_path)[1] == examples


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "tsv"])
def test_files_of_every_kind_give_the_same_questions(kind, tmp_path):
    """CSV and TSV have texts alone in their cells; others have lists and records too."""
    sets = ["simpleqa", "gsm8k"] if kind in ("csv", "tsv") else ["squad", "truthfulqa", "boolq"]
    for name in sets:
        found = []
        for form in (kind, "parquet"):
            folder = tmp_path / name / form
            folder.mkdir(parents=True)
            found.append(frozen_rows(name, READY[name]["rows"], folder, form))
        assert found[0] == found[1] and len(found[0][1]) == 3


@pytest.mark.parametrize(("name", "wrong", "message"), cases("wrong_labels"))
def test_a_wrong_label_is_refused_in_one_line_that_names_its_row(name, wrong, message, tmp_path, capsys):
    rows = [*READY[name]["rows"][:2], READY[name]["rows"][2] | wrong]
    code, _ = frozen_rows(name, rows, tmp_path, "jsonl")
    said = capsys.readouterr().err.strip().splitlines()
    assert code == 2 and f"line 3: {message}" in said[-1] and len(said) == 1


def test_every_ready_entry_has_published_rows_in_a_test_and_is_pinned_to_a_commit():
    entries = {path.stem: path.read_text() for path in (ROOT / "config" / "datasets").glob("*.yaml")}
    assert entries.keys() == READY.keys()
    for text in entries.values():
        for dataset in yaml.safe_load(text)["datasets"].values():
            local = "path" in dataset["source"]
            assert re.search(r"commit [0-9a-f]{40}", text) if local else len(dataset["source"]["revision"]) == 40


# Labels that could mean the opposite are refused, and so are cells that would be misread; rows in the schemas in which the sets are
# published. In tests/data/labels.jsonl `mine` is the entry of the data set, in which pairs stand for a mapping of answer_is.
def dataset(source: str, **mine) -> dict:
    return explained(mine | {"source": {"path": source}, "splits": {"test": {"from": "test"}}})


def explained(mine: dict) -> dict:
    """The entry with a mapping of answer_is in place of its pairs."""
    pairs = mine.get("answer_is")
    return mine | {"answer_is": dict(pairs)} if isinstance(pairs, list) else mine


@pytest.fixture
def labelled(folder):
    """An empty folder, with one for data."""
    (folder / "data").mkdir()
    return folder


def configured(mine: dict) -> Config:
    config = load.read_mapping(ROOT / "config.yaml")
    config["datasets"]["mine"] = mine
    return configuration.check(config)


def said_of(folder, mine: dict, content: str) -> tuple[int, str, list[dict]]:
    """(exit code, log, examples) of the configuration's check and then `orce prompts`, on one file."""
    (folder / mine["source"]["path"]).write_text(content, encoding="utf-8")
    made = folder / "out" / "test.jsonl"
    code, said = called(main, prompts_words(stages.pick_settings("prompts", configured(mine), "mine"), made))
    return code, said, [json.loads(line) for line in made.read_text().splitlines()] if made.exists() else []


def right_of(example: dict) -> str:
    return example["choices"]["ABCDEF".index(example["reference"])] if example["choices"] else example["reference"]


ACCEPTED = {
    one["name"]: (dataset(**one["mine"]), one["content"], one["right"]) for one in cases("labels") if "right" in one
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_published_layout_has_its_own_right_answers(name, labelled):
    mine, content, expected = ACCEPTED[name]
    code, said, examples = said_of(labelled, mine, content)
    assert code == 0, said
    assert [right_of(example) for example in examples] == expected


REFUSED = [one for one in cases("labels") if "message" in one]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["message"][:60])
def test_what_could_mean_the_opposite_or_would_be_misread_is_refused_in_one_line(case, labelled):
    mine, message = dataset(**case["mine"]), case["message"]
    code, said, examples = said_of(labelled, mine, case["content"])
    assert code == 2 and examples == []
    assert re.search(message, said) and len(said.splitlines()) == 1, said
    with pytest.raises(BadInput, match=f"config: datasets.mine: .*{message}"):  # the first rows, before anything runs
        configuration.rows(configured(mine))


def test_a_column_that_stands_twice_in_parquet_is_refused(labelled):
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table([["?"], ["x"], ["y"]], names=["q", "a", "a"])
    pyarrow.parquet.write_table(table, labelled / "data" / "t.parquet")
    with pytest.raises(BadInput, match=r"data/t.parquet: the column 'a' stands twice"):
        fields = {"question": "q", "answer": "a"}
        configuration.rows(configured(dataset("data/t.parquet", task="qa", fields=fields)))


def test_the_first_right_answer_is_told_in_words_by_the_log_and_a_dry_run(labelled):
    said = said_of(labelled, *ACCEPTED["big-bench's target_scores, options given"][:2])[1]
    assert said == '[prompts mine] test: the right answer to "Was Jean Valjean imprisoned due to hunger?" is "A. Yes"\n'
    said = said_of(labelled, *ACCEPTED["PopQA's lists in a text column"][:2])[1]
    first, second = said.splitlines()
    assert first.endswith('the right answer to "What is X\'s occupation?" is "politician or political leader"')
    assert second == "[prompts mine] test: 2 of 3 questions repeat an earlier one"
    (labelled / "data" / "t.jsonl").write_text(REFUSED[0]["content"])
    (labelled / "config.yaml").write_text((ROOT / "config.yaml").read_text())
    (labelled / "mine.yaml").write_text(yaml.safe_dump({"datasets": {"mine": dataset(**REFUSED[0]["mine"])}}))
    words = "--configfile", "mine.yaml", "--", "results/mine/prompts/test.jsonl"
    code, said = snakemake(labelled, "--snakefile", str(ROOT / "Snakefile"), *words)
    assert code != 0
    expected = (
        "mine.yaml: datasets.mine: data/t.jsonl, line 1: 'target_scores.Yes' is 1, and the options are Yes, No; say"
    )
    assert expected in said


@pytest.mark.parametrize(("name", "arguments"), [("config.yaml", []), ("mine.yaml", ["--configfile", "mine.yaml"])])
def test_a_key_that_stands_twice_in_the_configuration_is_told_with_its_lines(name, arguments, labelled):
    (labelled / "config.yaml").write_text((ROOT / "config.yaml").read_text())
    with open(labelled / name, "a") as file:
        file.write("paper_tables: [mmlu]\nsft: {epochs: 2,\n  epochs: 3}\npaper_tables: [drop]\n")
    code, said = snakemake(labelled, "--snakefile", str(ROOT / "Snakefile"), *arguments, "--", "paper_tables")
    assert code != 0
    assert f"{name}, line" in said and "not valid YAML: the key " in said and "already" in said


def test_merged_keys_may_be_overridden(labelled):
    (labelled / "m.yaml").write_text("deep: {er: {a: &a {<<: &base {k: 1, l: 2}, k: 3}}}\nb: {<<: *a, l: 5}\n")
    assert load.read_mapping("m.yaml") == {"deep": {"er": {"a": {"k": 3, "l": 2}}}, "b": {"k": 3, "l": 5}}
