"""The report of a finished run, read in a real browser without a network."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from browser import Browser, until
from conftest import ROOT, typed

from orce.artefacts import files, store
from orce.config import layout, matrix
from orce.records import Candidate

pytestmark = [pytest.mark.slow, pytest.mark.needs("chromium")]
# What the rules under test make; everything before them is given.
RULES = ["prompts", "overlap", "evaluate", "table", "tables", "paper_tables", "figures", "metrics_csv", "all"]
SNAKEMAKE = [str(Path(sys.executable).with_name("snakemake")), "--snakefile", str(ROOT / "Snakefile")]
METHODS = list(layout.KINDS["main"])
PICTURES = ["reliability", "reward", "risk-coverage"]


def snakemake(*arguments, folder):
    command = [*SNAKEMAKE, *arguments, "--allowed-rules", *RULES, "--", "all"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A run of real MMLU questions from the confidences on: what a model would have said is made by hand."""
    folder = tmp_path_factory.mktemp("report")
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    source = {"path": str(ROOT / "tests" / "data" / "mmlu")}
    splits = {name: {"from": "test", "size": size} for name, size in (("sft", 10), ("rl", 10), ("test", 30))}
    config |= {
        "datasets": {"mmlu": {"task": "mmlu", "source": source, "splits": splits}},
        "models": {"llama3-8b": {"label": "LLAMA-3 8B", "source": {"path": "nowhere"}}},
        "tables": {"mmlu": {"kind": "main", "dataset": "mmlu", "models": ["llama3-8b"]}},
        "paper_tables": ["mmlu"],
        "device": "cpu",
    }
    config["evaluation"]["bootstrap"] = 200
    (folder / "nowhere").mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    given(folder / "results" / "mmlu" / "llama3-8b", ids=[f"question {i}" for i in range(30)])
    made = ("prompts/", "metrics.json")
    for path in matrix.files(typed(config), ["mmlu"]):
        if not any(name in path for name in made) and not (folder / path).exists():  # nothing here reads what is in it
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text("{}" if path.endswith(".json") else "")
    snakemake("--cores", "1", folder=folder)
    return folder


def given(cell: Path, ids: list[str]) -> None:
    """What the steps before the evaluation leave behind, for one cell."""
    rng = np.random.default_rng(0)
    kappa = rng.integers(0, 11, len(ids)) / 10
    correct = rng.random(len(ids)) < kappa
    cell.mkdir(parents=True)
    rows = [f"{name},test,{round(10 * k)},10,{k},A,{int(c)}" for name, k, c in zip(ids, kappa, correct, strict=True)]
    (cell / "surrogate.csv").write_text(
        "\n".join(["id,split,n_correct,n_samples,kappa,answer,answer_correct", *rows]) + "\n"
    )
    store.seal(cell / "surrogate.csv")
    cost = {"cost": {"seconds": 12.5, "gpus": 1}, "sha256": {"adapter_model.safetensors": "0" * 64}}
    files.write_json(cell / "samples.manifest.json", {"file": "samples.jsonl", "sha256": "0" * 64})
    for stage, size in (("conftuner", "examples"), ("sft", "examples"), ("dpo", "pairs")):
        log = [{"step": step, "loss": 0.7 - 0.05 * step, "rewards/margins": 0.1 * step} for step in range(30)]
        (cell / stage).mkdir()
        (cell / stage / "training_log.json").write_text(json.dumps(log))
        facts = {"stage": stage, size: 10, "steps": 3, "loss": 0.5, **cost}
        listed = {"files": {"training_log.json": files.file_digest(cell / stage / "training_log.json")}}
        files.write_json(cell / stage / "manifest.json", facts | listed)
    drawn = [candidate(*one) for one in zip(ids, kappa.tolist(), correct.tolist(), strict=True)]
    store.write(cell / "candidates.jsonl", drawn)
    for number, method in enumerate(METHODS):
        stated = np.clip(np.round(kappa + rng.normal(0, 0.5 / (number + 1), len(ids)), 2), 0, 1).tolist()
        store.write(cell / method / "confidences.jsonl", [*records(ids, correct.tolist(), stated, method)])


def candidate(name, kappa, correct):
    drawn, stated = [0.1, 0.5, kappa], round(0.2 + 0.6 * kappa, 2)
    return Candidate(
        name, kappa, correct, drawn, [-1.0] * 3, [f"Confidence: {one}" for one in drawn], stated, [-5.0] * 101
    )


def records(ids, correct, stated, method):
    """Consistency states one value for all, Vanilla cannot be read now and then."""
    for i, (name, right, value) in enumerate(zip(ids, correct, stated, strict=True)):
        value = 0.9 if method == "consistency" else None if method == "vanilla" and i % 7 == 0 else value
        yield {"id": name, "answer": "A", "correct": right, "f1": None, "confidence": value, "raw": ""}


@pytest.fixture(scope="module")
def report(finished) -> Path:
    snakemake("--report", "report.html", folder=finished)
    return finished / "report.html"


@pytest.fixture(scope="module")
def browser(report, tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as window:
        window.open(report.as_uri())
        until(lambda: window.evaluate("document.querySelectorAll('nav li').length > 4"))
        yield window


def click(browser, text, within="nav a"):
    """Click what says `text`, once it is there."""
    find = f"[...document.querySelectorAll({within!r})].find(one => one.innerText.trim() === {text!r})"
    until(lambda: browser.evaluate(f"!!{find}"))
    browser.evaluate(f"{find}.click()")


def show(browser, category, entry):
    """Open an entry of a category: the eye in the row whose first words are `entry`."""
    browser.evaluate("app.setView({navbarMode: 'menu'})")
    click(browser, category)
    row = f"[...document.querySelectorAll('nav tbody tr')].find(one => one.innerText.trim().startsWith({entry!r}))"
    until(lambda: browser.evaluate(f"!!{row}"))
    browser.evaluate(f"{row}.querySelector('a').click()")


def entries(browser, category):
    browser.evaluate("app.setView({navbarMode: 'menu'})")
    click(browser, category)
    rows = "[...document.querySelectorAll('nav tbody tr')].map(one => one.cells[0].innerText.trim())"
    return sorted(until(lambda: browser.evaluate(rows)))


SIZES = "[...document.querySelectorAll('table')].map(one => [one.rows.length, one.getBoundingClientRect().width])"


def tables_shown(browser):
    """[rows, width in pixels] of the tables in the frame that is shown."""
    return until(lambda: [table for tables in browser.in_frames(SIZES) for table in tables or []])


def text_shown(browser):
    return " ".join(browser.in_frames("document.body ? document.body.innerText : ''"))


TOP = "Math.round(document.querySelector({!r}).getBoundingClientRect().top)"


def test_it_opens_on_the_tables_and_two_pictures_and_the_graph_comes_last(browser, finished):
    orce = json.loads((finished / "results/mmlu/llama3-8b/orce/metrics.json").read_text())
    tables = "document.querySelector('iframe.tables')?.contentDocument?.body?.innerText ?? ''"
    until(lambda: f"{orce['aurc']:.3f}" in browser.evaluate(tables))
    until(lambda: browser.evaluate("!!document.querySelector('#rulegraph canvas, #rulegraph svg')"))
    tops = [browser.evaluate(TOP.format(one)) for one in ("iframe.tables", ".pair img", "#rulegraph")]
    assert tops == sorted(tops) and tops[0] < 200, "the tables stand in the first screen"
    shown = browser.evaluate("[...document.querySelectorAll('.pair img')].map(one => [one.alt, one.naturalWidth])")
    assert [Path(name).stem for name, _ in shown] == ["risk-coverage-mmlu-llama3-8b", "reliability-mmlu-llama3-8b"]
    assert all(width > 600 for _, width in shown)
    assert browser.evaluate("document.querySelector('iframe.tables').getBoundingClientRect().width") > 900
    assert "System Message" not in browser.evaluate("document.body.innerText"), "docutils complains in the page"


def test_every_part_stands_in_its_category(browser):
    assert entries(browser, "Tables") == ["mmlu", "tables"]
    assert entries(browser, "Comparison with the paper") == ["csv", "html"]
    assert entries(browser, "Metrics") == ["every metric of every method"]
    assert entries(browser, "Figures") == PICTURES


@pytest.mark.parametrize("kind", PICTURES)
def test_every_picture_is_shown_at_its_size(browser, kind):
    show(browser, "Figures", kind)
    picture = "document.querySelector('.h-screen img[src^=\"data:image/png\"]')"
    shown = until(lambda: browser.evaluate(f"{picture} && {picture}.complete && {picture}.naturalWidth"))
    assert shown >= 3.3 * 200
    assert browser.evaluate(f"{picture}.getBoundingClientRect().height") > 100


def test_a_table_is_shown_with_the_numbers_of_the_run(browser, finished):
    show(browser, "Tables", "mmlu")
    assert all(rows >= 2 + len(METHODS) and width > 300 for rows, width in tables_shown(browser))
    ece = json.loads((finished / "results/mmlu/llama3-8b/orce/metrics.json").read_text())["ece"]
    until(lambda: f"{ece:.3f}" in text_shown(browser))


def test_the_comparison_is_a_page_with_every_published_value(browser):
    show(browser, "Comparison with the paper", "html")
    until(lambda: sum(rows - 1 for rows, _ in tables_shown(browser)) == 490)
    text = text_shown(browser)
    assert "inside the interval" in text and "not run" in text


def test_captions_say_what_is_shown(browser, report):
    text = report.read_text()
    for words in ("ten bins of ECE", "expectation over all orders", "200 resamples", "Datasets: mmlu. Models: "):
        assert words in text


def test_nothing_was_asked_of_the_network_and_nothing_went_wrong(browser, report):
    for category, entry in (("Figures", "reward"), ("Tables", "tables")):
        show(browser, category, entry)
    browser.evaluate("app.setView({navbarMode: 'menu'})")
    click(browser, "Statistics")
    browser.pump(0.5)
    outside = [url for url in browser.requests if not url.startswith(("file:", "data:", "blob:", "about:"))]
    assert browser.requests and outside == []
    assert browser.complaints == []


def test_a_request_and_an_error_would_have_been_noticed(tmp_path):
    frame = "<script>console.error('from the frame')</script>"
    page = tmp_path / "page.html"
    page.write_text(
        "<script>setTimeout(() => { throw new Error('from the page') })</script>"
        f"<img src='http://127.0.0.1:47011/picture.png'><iframe src=\"data:text/html,{frame}\"></iframe>"
    )
    with Browser(tmp_path / "browser") as window:
        window.open(page.as_uri())

        def noticed() -> bool:
            window.pump(0.2)
            said = all(one in str(window.complaints) for one in ("from the page", "from the frame"))
            return said and "http://127.0.0.1:47011/picture.png" in window.requests

        until(noticed)


def test_a_screenshot_can_be_taken_of_what_a_reader_sees(browser, tmp_path):
    show(browser, "Figures", "reliability")
    path = Path(os.environ.get("ORCE_SCREENSHOTS", tmp_path)) / "report.png"
    browser.pump(0.5)
    browser.screenshot(path)
    assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 20_000


def test_a_second_run_has_nothing_to_draw(finished):
    assert "Nothing to be done" in snakemake("--cores", "1", folder=finished)
