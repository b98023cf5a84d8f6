"""Data without code: the tasks qa and choice, by `fields`, on local files in published layouts; splits, seeds and worked examples."""

import gzip
import json
import re
from collections import Counter
from pathlib import Path

import dry_run
import pyarrow
import pyarrow.parquet
import pytest
import yaml
from conftest import ARITHMETIC, ROOT, WORLDFACTS, cases, prompts_words
from dry_run import called

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
from orce.stages.prompts import draw_split
from orce.tasks.examples import find_overlaps

pytestmark = pytest.mark.usefixtures("folder")


def written(path, content):
    """A text, or rows as Parquet or JSON lines, in a file that is packed as its name says."""
    name = path.name.lower()
    if isinstance(content, str):
        raw = content.encode()
    elif ".parquet" in name:
        sink = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(content), sink)
        raw = sink.getvalue().to_pybytes()
    else:
        raw = "".join(json.dumps(row) + "\n" for row in content).encode()
    if name.endswith(".gz"):
        raw = gzip.compress(raw)
    path.write_bytes(pyarrow.compress(raw, codec="zstd", asbytes=True) if name.endswith(".zst") else raw)
    return path


def shipped(name):
    """The dataset of a ready entry, checked with config.yaml, as --configfile would."""
    config = read_config([str(ROOT / "config.yaml"), str(ROOT / "config" / "datasets" / f"{name}.yaml")])
    assert config.paper_tables == [name] and config.tables[name].dataset == name
    return config


def prompts_of(config: Config, name: str, split: str = "test") -> tuple[int, str, list[dict]]:
    """(exit code, log, examples) of the prompts step with the settings that the workflow gives it."""
    made = Path(f"{split}.prompts.jsonl")
    code, said = called(main, prompts_words(stages.pick_settings("prompts", config, name), made, split))
    return code, said, files.read_jsonl(made) if code == 0 else []


def right_of(example: dict) -> str:
    return example["choices"]["ABCDEF".index(example["reference"])] if example["choices"] else example["reference"]


def qa(equality, *reference):
    asked = {"id": "1", "question": "?", "context": None, "choices": None}
    return asked | {"reference": [*reference], "equality": equality}


@pytest.mark.parametrize(("equality", "reference", "text", "right"), cases("equalities"))
def test_answers_are_right_or_agree_by_the_equality_of_their_data_set(equality, reference, text, right):
    task, example = tasks.get("qa"), qa(equality, reference)
    answer = task.extract(text, example)
    assert task.score(answer, example)["correct"] is right
    if answer and equality != "contains":  # by which samples agree as whole texts alone
        assert (task.key(answer, example) == task.key(reference, example)) is right


@pytest.mark.parametrize(("message", "mine"), cases("bad_datasets"))
def test_what_the_configuration_says_wrongly_is_told_before_anything_runs(message, mine):
    given = {"source": {"path": "t.jsonl"}, "splits": {"test": {"from": "test"}}} | explained(mine)
    given["task"] = {"arithmetic": ARITHMETIC}.get(mine["task"], mine["task"])
    with pytest.raises(BadInput, match=message):
        configured(given)


def test_splits_of_one_source_share_nothing_and_keep_its_order():
    written(Path("all.jsonl"), [{"q": f"{i}?", "a": str(i), "id": str(i)} for i in range(20)])
    source = {"path": ".", "fields": {"question": "q", "answer": "a", "id": "id"}}
    sizes = {"sft": "1/3", "rl": 5, "test": None}
    splits = {name: Split(origin="all", size=size) for name, size in sizes.items()}

    def drawn(seed):
        options = Prompts(dataset="mine", task="qa", source=source, splits=splits, tests=[], seed=seed)
        return [[int(one["id"]) for one in draw_split(options, split)] for split in splits]

    parts = drawn(0)
    assert [len(part) for part in parts] == [6, 5, 9]
    assert Counter(parts[0] + parts[1] + parts[2]) == Counter(range(20))
    assert parts == [sorted(part) for part in parts]
    assert parts == drawn(0) != drawn(1)


def test_a_seed_is_that_of_all_its_names():
    named = [("ab", "c"), ("a", "bc"), ("abc",), ("c", "ab"), ()]
    assert len({seed_of(base, *names) for base in (1, 11) for names in named}) == 10
    assert seed_of(1, "1") != seed_of(11)
    assert all(0 <= seed_of(7, *names) < 2**63 for names in named)
    # The first eight bytes of sha256("7" 0x1f "answers" 0x1f "q1"), less the last bit.
    assert seed_of(7, "answers", "q1") == 0xC28B83108A4374F


def test_each_question_is_sampled_with_a_seed_of_its_own_whatever_is_sampled_beside_it():
    class Engine:
        """Says the seed that it was given."""

        def generate(self, prompts, n, temperature, max_tokens, seeds, top_p=1.0):
            return [[str(seed)] * n for seed in seeds]

    no_model = Model(source=Source(), dtype="float32", device="cpu")
    settings = sample.SampleSettings(
        task="qa", label="x", engine="none", model=no_model, shots=None, seed=3, samples=1, temperature=1.0, max_tokens=8, top_p=1.0,
    )  # fmt: skip
    examples = [("rl", qa("exact", "1") | {"id": str(i)}) for i in range(4)]
    together = [one.raw for one in sample.sample_chunk(examples, Engine(), settings)]
    alone = [sample.sample_chunk([one], Engine(), settings)[0].raw for one in reversed(examples)]
    assert together == alone[::-1] and len({text for (text,) in together}) == 4


WITH_SHOTS = {split: {"from": "test", "size": size} for split, size in (("shots", 3), ("sft", 10), ("test", 20))}


def test_worked_examples_are_turns_before_the_question_and_in_no_other_split():
    rows = [{"context": f"The capital of land {i} is", "continuation": f"City {i}"} for i in range(40)]
    config, task = shipped("qa-wikidata"), tasks.get("qa")
    data = config.datasets["qa-wikidata"]
    data.source = {"path": str(written(Path("rows.jsonl"), rows))}
    data.splits = WITH_SHOTS
    examples, others = (prompts_of(config, "qa-wikidata", split)[2] for split in ("test", "sft"))
    worked = examples[0]["worked"]
    assert len(worked) == 3 and all(one["worked"] == worked for one in examples)
    *shown, last = task.prompt(examples[0])
    assert [turn["role"] for turn in shown] == ["user", "assistant"] * 3
    assert shown[0]["content"].startswith("Answer the question.")
    assert shown[2]["content"] == worked[1][0]
    assert "\n".join(worked[0]).endswith(shown[1]["content"])
    assert last["content"] == examples[0]["question"] and "Complete the sentence." in last["content"]
    asked = [one["question"] for one in [*examples, *others]]
    assert len(set(asked)) == 30 and not {question for question, _ in worked} & set(asked)
    assert picking.sampled_splits(config, "qa-wikidata", "llama3-8b") == ["sft", "test"]
    data.splits = {"test": {"from": "test", "size": 20}}
    bare = prompts_of(config, "qa-wikidata")[2][0]
    assert "worked" not in bare and len(task.prompt(bare)) == 1
    assert len(task.prompt(examples[0], 2)) == 5 and len(task.prompt(examples[0], 0)) == 1
    for shots, here, there in ((4, examples[0], 3), (1, bare, 0)):
        with pytest.raises(BadInput, match=f"shots is {shots}; expected a number from 0 to {there}"):
            task.prompt(here, shots)


@pytest.mark.parametrize(("task", "one", "other", "kind", "contained"), cases("overlaps"))
def test_passages_overlap_by_words_short_texts_by_every_sign_and_twins_ask_the_same(task, one, other, kind, contained):
    """one and other: a question, and its passage and options if it has them."""
    module = task and tasks.get({"arithmetic": ARITHMETIC, "worldfacts": WORLDFACTS}[task])
    splits = ("train", "validation", "test") if module else ()
    known = {example["question"]: example for split in splits for example in module.load({}, split)}

    def item(question, context=None, choices=None):
        asked = {"id": question, "question": question, "context": context, "choices": choices, "reference": "A"}
        return known.get(question, asked)

    train, test = item(*one), item(*other)
    found = find_overlaps([train], [test], task=module)
    assert [(match.train, match.test, match.kind) for match in found] == (
        [(train["id"], test["id"], kind)] if kind else []
    )
    assert all(contained[0] <= match.containment <= contained[1] for match in found)


def test_overlap_with_test_sets_is_removed_by_the_workflow_and_the_splits_take_what_is_left(folder):
    """The shipped LogiQA entry with remove_overlap: true, over files of which 6 of 30 stand in a test set."""
    passages = [" ".join(f"word{i}x{j}" for j in range(30)) for i in range(60)]
    asked = {"question": "Which follows?", "options": ["w", "x", "y", "z"], "answer": 0}
    (folder / "data").mkdir()
    for name, places in (("train", range(30)), ("test", (0, 1, 2, 3, *range(40, 46)))):
        files.write_jsonl(folder / "data" / f"{name}.txt", [asked | {"id": i, "text": passages[i]} for i in places])
    other = {"question": "Which follows?", "answers": ["w", "x", "y", "z"], "label": 0}
    rows = [other | {"id_string": f"val_{i}", "context": passages[i]} for i in (4, 5, 50)]
    (folder / "data" / "val.json").write_text(json.dumps(rows))
    config = load.read_mapping(ROOT / "config.yaml")
    config["datasets"]["logiqa"] |= {"source": {"path": "data"}, "remove_overlap": True}
    config["datasets"]["reclor"]["source"] = {"path": "data"}
    prompts = [f"results/logiqa/prompts/{split}.jsonl" for split in ("sft", "rl")]
    dry_run.make(folder, config, *prompts, "results/logiqa/overlap.json")
    frozen = [files.read_jsonl(path) for path in prompts]
    assert [len(examples) for examples in frozen] == [8, 16]
    drawn = [int(example["id"].removeprefix("train-")) for examples in frozen for example in examples]
    assert {*drawn} == {*range(6, 30)}
    for report in files.read_json("results/logiqa/overlap.json").values():
        assert (report["exact"], report["near"]) == (0, 0)
    config["datasets"]["logiqa"]["remove_overlap"] = False
    assert len(prompts_of(configuration.check(config), "logiqa", "sft")[2]) == 10
    config["datasets"]["logiqa"]["remove_overlap"] = True
    config["datasets"]["logiqa"]["splits"]["sft"]["size"] = 30
    code, said, _ = prompts_of(configuration.check(config), "logiqa", "sft")
    taken = "size 30 after 16 examples taken by other splits, but the source split 'train' has 24"
    hint = "6 that overlap with a test set left out; give a share (size: 1/3), or null for what is left"
    assert code == 2 and f"datasets.logiqa.splits.sft: {taken}, {hint}" in said


# The entries of config/datasets: rows in the published layout, through the prompts step that Snakemake runs. Of each set three rows
# in its published columns, their right answers, the column of the question and what else is shown.
READY = {one["name"]: one for one in cases("ready_datasets")}


def frozen_rows(name, rows, kind="parquet") -> tuple[int, str, list[dict]]:
    """What the prompts step says of the rows, as the entry reads them, and makes of them."""
    config = shipped(name)
    data = config.datasets[name]
    origin = data.splits["test"].origin
    data.source = {"path": str(written(Path(f"{origin}.{kind}"), rows))}
    data.splits = {"test": Split(origin=origin)}
    return prompts_of(config, name)


@pytest.mark.parametrize("name", READY)
def test_rows_as_published_give_their_question_shuffled_options_and_right_answer(name):
    code, _, examples = frozen_rows(name, READY[name]["rows"])
    assert code == 0 and len(examples) == 3
    task = tasks.get(shipped(name).datasets[name].task)
    for row, example, right in zip(READY[name]["rows"], examples, READY[name]["right"], strict=True):
        assert example["question"].startswith(row[READY[name]["asked"]])
        assert right_of(example) == right
        assert example["choices"] is None or {*example["choices"]} == {*READY[name]["shown"], right}
        answer = example["reference"] if example["choices"] else right[0]
        assert task.score(task.extract(answer, example), example) == {"correct": True, "f1": None}
    if name in ("squad", "boolq"):
        contexts = [row.get("context", row.get("passage")) for row in READY[name]["rows"]]
        assert [one["context"] for one in examples] == contexts
    if name in ("gpqa", "sciq", "truthfulqa"):  # whose right options are published first
        more = [row | {"Record ID": str(i)} for i, row in enumerate(READY[name]["rows"] * 5)]
        shuffled = frozen_rows(name, more)[2]
        assert len({one["reference"] for one in shuffled}) > 1 and frozen_rows(name, more)[2] == shuffled
    if name == "winogrande":  # what is asked stands between the text and the options
        assert examples[0]["question"].endswith("too small.\nWhich option fills the blank (_)?")


@pytest.mark.parametrize(("name", "wrong", "message"), cases("wrong_labels"))
def test_a_wrong_label_is_refused_in_one_line_that_names_its_row(name, wrong, message):
    rows = [*READY[name]["rows"][:2], READY[name]["rows"][2] | wrong]
    code, said, _ = frozen_rows(name, rows, "jsonl")
    assert code == 2 and f"line 3: {message}" in said and len(said.strip().splitlines()) == 1


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


def configured(mine: dict) -> Config:
    config = load.read_mapping(ROOT / "config.yaml")
    config["datasets"]["mine"] = mine
    config["tables"]["mine"] = {"kind": "main", "dataset": "mine", "models": ["llama3-8b"], "methods": ["vanilla"]}
    return configuration.check(config)


def said_of(mine: dict, content: str) -> tuple[int, str, list[dict]]:
    """(exit code, log, examples) of the configuration's check and then the prompts step, on one file."""
    path = Path(mine["source"]["path"])
    path.parent.mkdir(exist_ok=True)
    written(path, content)
    return prompts_of(configured(mine), "mine")


ACCEPTED = {
    one["name"]: (dataset(**one["mine"]), one["content"], one["right"]) for one in cases("labels") if "right" in one
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_published_layout_has_its_own_right_answers(name):
    mine, content, expected = ACCEPTED[name]
    code, said, examples = said_of(mine, content)
    assert code == 0, said
    assert [right_of(example) for example in examples] == expected


REFUSED = [one for one in cases("labels") if "message" in one]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["message"][:60])
def test_what_could_mean_the_opposite_or_would_be_misread_is_refused_in_one_line(case):
    mine, message = dataset(**case["mine"]), case["message"]
    code, said, _ = said_of(mine, case["content"])
    assert code == 2 and re.search(message, said) and len(said.splitlines()) == 1, said
    with pytest.raises(BadInput, match=f"config: datasets.mine: .*{message}"):  # the first rows, before anything runs
        configuration.rows(configured(mine))


def test_a_column_that_stands_twice_in_parquet_is_refused():
    table = pyarrow.table([["?"], ["x"], ["y"]], names=["q", "a", "a"])
    pyarrow.parquet.write_table(table, "t.parquet")
    with pytest.raises(BadInput, match=r"t.parquet: the column 'a' stands twice"):
        configuration.rows(configured(dataset("t.parquet", task="qa", fields={"question": "q", "answer": "a"})))


def test_the_log_tells_the_first_right_answer_and_counts_repeats_and_empty_options():
    """A file with a line for each accepted answer would call most right answers wrong."""
    said = said_of(*ACCEPTED["big-bench's target_scores, options given"][:2])[1]
    assert said == '[prompts mine] test: the right answer to "Was Jean Valjean imprisoned due to hunger?" is "A. Yes"\n'
    process.tally("were counted before the command", 1, 1)
    said = said_of(*ACCEPTED["PopQA's lists in a text column"][:2])[1]
    first, second = said.splitlines()
    assert first.endswith('the right answer to "What is X\'s occupation?" is "politician or political leader"')
    assert second == "[prompts mine] test: 2 of 3 questions repeat an earlier one"
    mine = dataset("t.jsonl", task="qa", fields={"question": "q", "answer": "a"})
    said = said_of(mine, '{"q": "Who?", "a": "x"}\n{"q": "Who? ", "a": "y"}\n')[1]
    another = "1 of them with another right answer, as 'test-0' and 'test-1'"
    assert said.endswith(f"[prompts mine] test: 1 of 2 questions repeat an earlier one, {another}\n")
    mine = {"task": "mmlu", "source": {"path": "x_test.csv"}, "splits": {"test": {"from": "test"}}}
    said = said_of(mine, "q?,a,b,c,,D\nq2?,a,b,,d,D\nq3?,a,b,c,d,D\n")[1]
    assert "2 of 3 questions have an empty option, the right one of 1 of them, as 'x-test-0'" in said


def test_a_dry_run_refuses_labels_that_could_mean_the_opposite_and_a_key_that_stands_twice(project):
    mine = dataset(**REFUSED[0]["mine"])
    (project / "data").mkdir()
    Path(mine["source"]["path"]).write_text(REFUSED[0]["content"])
    for text, message in (
        (yaml.safe_dump({"datasets": {"mine": mine}}), "mine.yaml: datasets.mine: data/t.jsonl, line 1: 'target_scores.Yes' is 1, and"),
        ("sft: {epochs: 2,\n  epochs: 3}\n", "mine.yaml, line 2: not valid YAML: the key 'epochs' stands in line 1 already"),
    ):  # fmt: skip
        (project / "mine.yaml").write_text(text)
        code, said = dry_run.snakemake(project, "--snakefile", ROOT / "Snakefile", "--configfile", "mine.yaml")
        assert code != 0 and message in said
