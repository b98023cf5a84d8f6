"""The hub, from config.yaml's own sources: a loopback stand-in serves the four data sets in their real layouts."""

import copy
import io
import json
import re
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml
from conftest import PROGRAMS, ROOT, cases, program, prompts_words
from servers import Hub, Repo
from small_matrix import SNAKEMAKE
from transformers import AutoModelForCausalLM

from orce import stages, tasks
from orce.artefacts.files import read_jsonl as read
from orce.config import check

pytestmark = pytest.mark.slow

PAPER = yaml.safe_load((ROOT / "config.yaml").read_text())
COMMIT = "c0ffee" + "0" * 34
SIZES = {"sft": {"size": 4}, "rl": {"size": 6}, "test": {"size": 5}}
SPLITS = {name: [*spec["splits"]] for name, spec in PAPER["datasets"].items()}


def parquet(rows: list[dict]) -> bytes:
    out = io.BytesIO()
    pa.parquet.write_table(pa.Table.from_pylist(rows), out)
    return out.getvalue()


def jsonl(rows: list[dict]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def four(i: int) -> list[str]:
    return [f"{i} {word}" for word in "abcd"]


def mmlu(i: int, subject: str) -> dict:
    return {"question": f"What is {i}?", "choices": four(i), "subject": subject, "answer": i % 4}


def drop(i: int) -> dict:
    none = {"day": "", "month": "", "year": ""}
    answer = {"number": str(i), "date": none, "spans": [], "worker_id": "", "hit_id": ""}
    validated = {"number": [str(i), ""], "date": [none, none], "spans": [[], ["Ann", "Bob"]], "worker_id": [], "hit_id": []}  # fmt: skip
    text = {"section_id": "nfl_1", "query_id": f"q{i}", "passage": f"{i} points.", "question": "How many?"}
    return text | {"answer": answer, "validated_answers": validated}


def logiqa(i: int) -> dict:
    shown = {"text": f"Text {i}.", "question": "Which follows?", "options": four(i)}
    return shown | {"id": i, "answer": i % 4, "type": "{}"}


def reclor(i: int) -> dict:
    return {"context": f"Argument {i}.", "question": "Which weakens it?", "answers": four(i), "label": i % 4}


@pytest.fixture
def served(tmp_path):
    """The four data sets as published: Parquet by config, Parquet under data/, Parquet beside a script, JSON lines."""
    files = {
        "cais/mmlu": {
            "all/auxiliary_train-00000-of-00001.parquet": parquet([mmlu(i, "") for i in range(12)]),
            "all/test-00000-of-00001.parquet": parquet([mmlu(i, "law") for i in range(20, 26)]),
            "all/validation-00000-of-00001.parquet": parquet([mmlu(30, "law")]),
            "law/test-00000-of-00001.parquet": parquet([mmlu(i, "law") for i in range(2)]),
        },
        "EleutherAI/drop": {
            "data/train-00000-of-00002.parquet": parquet([drop(i) for i in range(7)]),
            "data/train-00001-of-00002.parquet": parquet([drop(i) for i in range(7, 12)]),
            "data/validation-00000-of-00001.parquet": parquet([drop(i) for i in range(20, 26)]),
        },
        "baber/logiqa2": {
            "logiqa2.py": b"raise SystemExit('a loading script ran')\n",
            "logiqa2/train-00000-of-00001.parquet": parquet([logiqa(i) for i in range(12)]),
            "logiqa2/test-00000-of-00001.parquet": parquet([logiqa(i) for i in range(20, 26)]),
            "logiqa2/validation-00000-of-00001.parquet": parquet([logiqa(i) for i in range(30, 32)]),
        },
        "tasksource/reclor": {
            "train.jsonl": jsonl([reclor(i) for i in range(12)]),
            "validation.jsonl": jsonl([reclor(i) for i in range(20, 26)]),
        },
    }
    found = {}
    for name, inside in files.items():
        (source,) = [spec["source"] for spec in PAPER["datasets"].values() if spec["source"].get("hub") == name]
        commit = COMMIT if source["revision"] == "main" else source["revision"]
        found[name] = Repo(inside | {"README.md": b"# A data set\n"}, commit)
    with Hub(found, tmp_path / "hf") as running:
        yield running


def on_the_hub(command, folder, served, **more) -> tuple[int, str]:
    """Exit code and all that a program said which takes the stand-in for the hub."""
    done = program(*command, cwd=folder, **served.environment | more)
    return done.returncode, done.stdout + done.stderr


def freeze(folder, served, name, change=None, **more):
    """`python -m orce prompts` with the settings that the workflow computes: exit code and all that it said."""
    config = copy.deepcopy(PAPER)
    mine = config["datasets"][name]
    mine["splits"] = {one: spec | SIZES[one] for one, spec in mine["splits"].items()}
    mine["source"] |= change or {}
    argv = prompts_words(stages.pick_settings("prompts", check.check(config), name), f"{name}/test.jsonl")
    return on_the_hub([sys.executable, "-m", "orce", *argv], folder, served, **more)


def test_all_prompts_of_the_paper_are_frozen_from_the_hub_by_the_workflow_itself(served, project):
    sizes = {name: {"splits": {split: SIZES[split] for split in splits}} for name, splits in SPLITS.items()}
    chosen = {"logiqa": {"splits": sizes["logiqa"]["splits"] | {"validation": {"from": "validation", "size": 2}}}}
    (project / "small.yaml").write_text(yaml.safe_dump({"datasets": sizes | chosen}))
    small = [*SNAKEMAKE, "--cores", "2", "--configfile", "small.yaml"]
    code, said = on_the_hub([*small, "-n", "--", "paper_tables"], project, served)
    assert code == 0 and "Job stats" in said, said[-3000:]
    prompts = [f"results/{name}/prompts/{split}.jsonl" for name, splits in SPLITS.items() for split in splits]
    validation = "results/logiqa/prompts/validation.jsonl"
    code, said = on_the_hub([*small, "--", *prompts, validation], project, served)
    assert code == 0, said[-5000:]
    assert len(read(project / validation)) == 2
    results = project / "results"
    for name, splits in SPLITS.items():
        frozen = {split: read(results / name / "prompts" / f"{split}.jsonl") for split in splits}
        assert {split: {"size": len(some)} for split, some in frozen.items()} == sizes[name]["splits"]
        ids = [example["id"] for examples in frozen.values() for example in examples]
        assert len(ids) == len(set(ids))
        manifest = json.loads((results / name / "prompts" / "test.manifest.json").read_text())
        assert manifest["source"]["revision"] == served.repos[manifest["source"]["hub"]].commit
    for example in read(results / "drop/prompts/test.jsonl"):
        assert example["reference"] == [[example["id"].removeprefix("q")], ["Ann", "Bob"]]
    (project / "test.jsonl").write_bytes(jsonl([logiqa(i) for i in range(20, 26)]))
    (project / "val.json").write_text(json.dumps([reclor(i) for i in range(20, 26)]))
    for name, split in (("logiqa", "test"), ("reclor", "val")):
        theirs = {one["id"]: one for one in tasks.get(name).load({"path": str(project)}, split)}
        for example in read(results / name / "prompts/test.jsonl"):
            assert example == theirs[example["id"]], "as in the publisher's files"
    assert served.repos["baber/logiqa2"].asked and "logiqa2.py" not in served.repos["baber/logiqa2"].asked
    log = (results / "logs/prompts/drop-test.log").read_text()
    assert f"in datasets.drop.source: revision: {COMMIT}\n" in log
    assert "revision:" not in (results / "logs/prompts/mmlu-test.log").read_text()  # pinned already


def test_what_was_read_once_is_read_again_without_a_connection(served, tmp_path):
    for offline in ("0", "1"):
        code, said = freeze(tmp_path, served, "logiqa", HF_HUB_OFFLINE=offline)
        assert code == 0, said
    code, said = freeze(tmp_path, served, "mmlu", HF_HUB_OFFLINE="1")
    assert code == 2 and "cais/mmlu" in said and "not in the local cache, and the hub cannot be reached" in said
    assert len(said.splitlines()) == 1, said


@pytest.mark.parametrize(("name", "gated", "change", "message"), cases("hub_refusals"))
def test_a_data_set_that_is_gated_or_not_there_is_one_line(served, tmp_path, name, gated, change, message):
    served.repos[PAPER["datasets"][name]["source"]["hub"]].gated = gated
    code, said = freeze(tmp_path, served, name, change=change)
    (line,) = [line for line in said.splitlines() if "revision:" not in line]
    assert code == 2 and re.search(message, line)


def test_a_script_without_parquet_files_is_read_as_converted_or_each_way_that_was_tried_named(served, tmp_path):
    repo = served.repos["baber/logiqa2"]
    parquets = {path: repo.files.pop(path) for path in [*repo.files] if path.endswith(".parquet")}
    converted = {path.replace("-00000-of-00001", "/0000"): data for path, data in parquets.items()}
    served.repos["baber/logiqa2@refs/convert/parquet"] = Repo(converted, "d" * 40)
    code, said = freeze(tmp_path, served, "logiqa")
    assert code == 0 and "read from the hub's own conversion (refs/convert/parquet)" in said, said
    assert len(read(tmp_path / "logiqa/test.jsonl")) == 5
    del served.repos["baber/logiqa2@refs/convert/parquet"]
    code, said = freeze(tmp_path, served, "logiqa")
    assert code == 2 and len(said.splitlines()) == 1, said
    assert "its Parquet files by name: none of logiqa2/test-*.parquet, logiqa2/test/*.parquet" in said
    assert "the datasets library: Dataset scripts are no longer supported" in said
    assert "the hub's own conversion (refs/convert/parquet): " in said
    assert "source: {path: FOLDER}" in said


def test_a_model_is_loaded_from_the_hub_and_a_refusal_is_one_line(served, small, tmp_path):
    files = {path.name: path.read_bytes() for path in Path(small).iterdir() if path.is_file()}
    served.repos["some/model"] = Repo(files, COMMIT, kind="models")
    served.repos["some/gated"] = Repo(files, COMMIT, kind="models", gated=401)
    sources = [{"hub": "some/model", "revision": name} for name in ("main", "v9")] + [{"hub": "some/gated"}]
    command = [sys.executable, PROGRAMS, "loaded", *map(json.dumps, sources)]
    done = program(*command, cwd=tmp_path, check=True, **served.environment)
    loaded, unknown, gated = done.stdout.splitlines()
    assert loaded == COMMIT and "some/model: the tokenizer cannot be loaded: " in unknown and "gated" in gated


WEIGHTS, QWEN = "results/models/qwen3-8b/manifest.json", PAPER["models"]["qwen3-8b"]["source"]


@pytest.fixture
def weights(served, small, tmp_path) -> Repo:
    """The repository of Qwen3 8B with a small model in two files, and the copies of weights that publishers put beside them."""
    AutoModelForCausalLM.from_pretrained(small).save_pretrained(tmp_path / "two", max_shard_size="20KB")
    files = {path.name: path.read_bytes() for folder in (small, tmp_path / "two") for path in Path(folder).iterdir()}
    files["consolidated.safetensors"] = files.pop("model.safetensors")
    files |= {"original/params.json": b"{}", "original/consolidated.00.pth": b"0" * 99, "pytorch_model.bin": b"0" * 99}
    repo = served.repos[QWEN["hub"]] = Repo(files, QWEN["revision"], kind="models")
    return repo


def test_weights_are_fetched_by_their_index_and_no_job_asks_the_hub_again(served, weights, project):
    (project / "cpu.yaml").write_text("{device: cpu, dtype: float32, gpus: 0}")
    fetching = [*SNAKEMAKE, "--cores", "1", "--configfile", "cpu.yaml", "--", WEIGHTS]
    code, said = on_the_hub(fetching, project, served)
    assert code == 0, said
    shards = {name for name in weights.files if re.fullmatch(r"model-.*\.safetensors", name)}
    assert len(shards) > 1 and shards <= {*weights.asked}
    assert not [name for name in weights.asked if "/" in name or "consolidated" in name or name.endswith(".bin")]
    assert json.loads((project / WEIGHTS).read_text())["commit"] == weights.commit
    before = len(weights.asked)
    loading = [sys.executable, PROGRAMS, "loaded", json.dumps(QWEN)]
    code, said = on_the_hub(loading, project, served, HF_HUB_OFFLINE="1")
    assert code == 0 and QWEN["revision"] in said and len(weights.asked) == before, said


@pytest.mark.parametrize(("change", "message"), cases("model_refusals"))
def test_access_and_space_are_asked_for_before_the_first_job(served, weights, project, change, message):
    vars(weights).update(change)
    code, said = on_the_hub([*SNAKEMAKE, "--cores", "1", "--", WEIGHTS], project, served)
    assert code == 1 and [message in line for line in said.splitlines()].count(True) == 1, said
    assert not (project / "results").exists() and not weights.asked


def test_without_a_network_a_run_says_so_in_a_line_and_takes_what_was_fetched(served, weights, project):
    alone = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    words = [*SNAKEMAKE, "--cores", "1", "--forcerun", "fetch", "--", WEIGHTS]
    code, said = on_the_hub(words, project, served, **alone)
    assert code == 1 and "[preflight] Qwen/Qwen3-8B: the hub does not answer (" in said
    assert "not in the local cache, and the hub cannot be reached" in said, said
    assert on_the_hub(words, project, served)[0] == 0
    code, said = on_the_hub(words, project, served, **alone)
    assert code == 0, said
