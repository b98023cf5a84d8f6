"""Labels, names and paths that mean harm: each is refused in one line by the check, or printed as it is written.

The PDF has every character that a font of the machine has, and the code point of the others. LaTeX compiles what its fonts
have.
"""

import html
import json
import re
import shutil

import docutils.core
import jinja2
import pytest
from conftest import ROOT, typed
from test_tables import compiled, metrics, pages_of

from orce import methods
from orce.__main__ import main
from orce.artefacts import store
from orce.config import layout, load, settings
from orce.reports import figures
from orce.stages.figures import REPORTED

PAPER = load.mapping(ROOT / "config.yaml")
LATEX, OTHER = "letters of pdflatex", "others"
PRINTED = {
    "a command": (r"\input{/etc/passwd}", LATEX),
    "a shell escape": (r"\immediate\write18{touch pwned}", LATEX),
    "the end of an argument": (r"a} \end{document} {b", LATEX),
    "a comment": ("100 % & more # of _it_ ^2 ~", LATEX),
    "mathematics": (r"$\frac{1}{0}$ and $", LATEX),
    "an argument of a line break": ("[9in] *a* -- <<b>>", LATEX),
    "a script": ("</script><script>alert(1)</script>", LATEX),
    "an attribute": ('" onmouseover="alert(1)\' &lt;', LATEX),
    "a comment of HTML": ("<!-- x -->", LATEX),
    "a directive of RST": (".. raw:: html", LATEX),
    "references of RST": ("|x| `y`_ *z* a_ :ref:`b` ::", LATEX),
    "braces of Jinja": ("{{ 1 // 0 }} {% raw %}", LATEX),
    "a wildcard": ("{wildcards.x} {x}", LATEX),
    "hidden from a legend": ("_a", LATEX),
    "a formula of a spreadsheet": ("=cmd|' /C calc'!A0", LATEX),
    "Latin": ("Straße, Łódź, naïve café", LATEX),
    "CJK": ("模型", OTHER),
    "Arabic": ("نموذج كبير", OTHER),
    "Hebrew": ("מודל", OTHER),
    "Cyrillic and Greek": ("Модель Ω", OTHER),
    "an emoji": ("a 😀", OTHER),
    "stacked marks": ("Z\u0351\u036b\u0343a", OTHER),
    "runes": ("ᚠᚢᚦ", OTHER),
    "a wide sign of a script": ("𝕄𝕠𝕕𝕖𝕝 Ａ", OTHER),
}
LABEL = "models/qwen3-8b/label"
REFUSED = {
    "a line break": (LABEL, "a\nb", r"models.qwen3-8b.label: U\+000A in 'a\\nb' cannot be printed"),
    "an escape sequence": (LABEL, "a\x1b[2Jb", r"models.qwen3-8b.label: U\+001B in"),
    "a bell": ("tables/mmlu/methods", {"orce": "a\x07"}, r"tables.mmlu.methods.orce: U\+0007 in"),
    "a C1 control": (LABEL, "a\x9bb", r"U\+009B in"),
    "a line of Unicode": (LABEL, "a\u2028.. raw:: html", r"U\+2028 in"),
    "a changed direction": (LABEL, "a\u202eb", r"U\+202E in"),
    "an invisible sign": (LABEL, "a\u200bb", r"U\+200B in"),
    "half a pair": (LABEL, "a\ud800", r"U\+D800 in|not valid YAML|not a readable YAML"),
    "no letter at all": (LABEL, "  ", "models.qwen3-8b.label: 2 characters; a label has 1 to 100"),
    "a label without end": (LABEL, "a" * 5000, "models.qwen3-8b.label: 5000 characters"),
    "an unprintable caption": ("tables/mmlu/caption", "a\x00b", r"tables.mmlu.caption: U\+0000 in"),
    "a file in \\label": ("tables/mmlu/label", r"x}\input{/etc/passwd}\label{y", "tables.mmlu.label: .* is not a LaTeX label"),
    "a space in \\label": ("tables/mmlu/label", "a b", "tables.mmlu.label: 'a b' is not a LaTeX label"),
    "a path for a dataset": ("datasets/..~x", PAPER["datasets"]["mmlu"], "config: datasets: '../x' cannot be a name"),
    "a line break in a dataset": ("datasets/mmlu\n", PAPER["datasets"]["mmlu"], r"config: datasets: 'mmlu\\n' cannot be a name"),
    "a command for a model": ("models/$(id)", PAPER["models"]["qwen3-8b"], r"config: models: '\$\(id\)' cannot be a name"),
    "an option for a model": ("models/--help", PAPER["models"]["qwen3-8b"], "config: models: '--help' cannot be a name"),
    "a path for a table": ("tables/..~..~x", PAPER["tables"]["mmlu"], "cannot name a table"),
    "a path for a method": ("methods/..~x", "a.py", "config: methods: .*cannot be a name"),
    "a line break in a reward": ("rewards/mine\n", "a.py", r"config: rewards: 'mine\\n' cannot be a name"),
    "a label of a reward's module": ("rewards/mine", "mine.py", r"orce-mine: LABEL of its module: U\+001B in"),
    "a module that is missing": ("rewards/mine", "a b; touch pwned.py", "a b; touch pwned.py: no such file"),
    "a server with a password": ("models/qwen3-8b/source", {"server": "http://a:b@c/v1", "model": "m"}, "config: models.qwen3-8b.source"),
}  # fmt: skip


def test_there_are_enough_of_them():
    assert len(PRINTED) + len(REFUSED) >= 30


@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_anything_runs(name, tmp_path, monkeypatch, capfd):
    path, value, message = REFUSED[name]
    for part in reversed(path.split("/")):
        value = {part.replace("~", "/"): value}
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "config.yaml", tmp_path)
    (tmp_path / "over.json").write_text(json.dumps(value))
    (tmp_path / "mine.py").write_text("LABEL = 'a\\x1b[2J'\n\n\ndef reward(*_):\n    return 0\n")
    assert main(["plan", "--configfile", "over.json"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert re.search(message, line) and line.isprintable(), line
    assert {one.name for one in tmp_path.iterdir()} - {"__pycache__"} == {"config.yaml", "over.json", "mine.py"}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A function that renders a table of one model with this label, by the two steps of the workflow."""
    monkeypatch.chdir(tmp_path)
    record = {"config_digest": "c", "git_commit": "g", "packages": {}, "settings": {"seed": 1}, "inputs": {}}

    def tables(label):
        config = PAPER | {"tables": {"mine": {"kind": "main", "dataset": "logiqa", "models": ["qwen3-8b"]}}}
        config["tables"]["mine"] |= {"methods": {"vanilla": label, "orce": "ORCE"}, "caption": f"On {label}."}
        config["models"] = PAPER["models"] | {"qwen3-8b": PAPER["models"]["qwen3-8b"] | {"label": label}}
        options = settings.to_argument(settings.tables(typed(config), ["mine"]))
        paths = [path for _, path in layout.cells(typed(config).tables["mine"], methods.of(typed(config)))]
        for path in paths:
            store.write_object(path, metrics() | {"provenance": record})
        for step in ("table", "tables"):
            assert main([step, "--settings", options, "--metrics", *paths, "--out", "paper_tables"]) == 0
        return tmp_path / "paper_tables", config

    return tables


@pytest.mark.slow
@pytest.mark.needs("latex", "poppler")
@pytest.mark.parametrize("name", PRINTED)
def test_printed_as_it_is_written(name, run, tmp_path):
    label, letters = PRINTED[name]
    folder, _ = run(label)
    for page in ("mine.html", "tables.html"):
        text = (folder / page).read_text()
        assert html.escape(label, quote=True).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") in text
        assert "<script" not in text.replace("<script>\n", "")
    assert (folder / "comparison.csv").stat().st_size > 1000
    signs_are_in(folder / "tables.pdf", figures.drawable(label))
    if letters == LATEX:
        signs_are_in(compiled(folder), label)
    for character in {*figures.drawable(label)} - {*label}:
        assert character in "[]U+0123456789ABCDEF"
    assert [path for path in tmp_path.rglob("*pwned*")] == []


def signs_are_in(pdf, label):
    """Every sign of the label is in the PDF, or its typographic form; and no file of the machine."""
    shown = "".join("".join(page.split()) for page in pages_of(pdf))
    assert sorted({*"".join(label.split())} - {*shown} - {*"'\"`-<>"}) == [] and "root:x:0" not in shown


@pytest.mark.needs("poppler")
def test_a_character_that_no_font_has_is_its_code_point(run):
    folder, _ = run("\U00016a38 a")
    assert "[U+16A38]" in "".join(pages_of(folder / "tables.pdf"))


class Picture:
    """What Snakemake gives the text of its report for each file."""

    def __init__(self, label):
        self.filename, self.path = "reliability-logiqa-qwen3-8b.png", ROOT / "docs" / "images" / "reliability.png"
        self.labels = {"picture": "reliability", "of": label.translate(REPORTED)}


@pytest.mark.parametrize("name", PRINTED)
def test_the_text_of_the_report_is_text(name):
    label = PRINTED[name][0]
    config = PAPER | {"paper_tables": ["logiqa"]}
    config["models"] = {key: spec | {"label": label} for key, spec in PAPER["models"].items()}
    config["tables"] = {"logiqa": PAPER["tables"]["logiqa"] | {"models": ["qwen3-8b"]}}
    source = (ROOT / "workflow" / "report" / "workflow.rst").read_text()
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(source)
    text = template.render(snakemake={"config": config}, files=[Picture(label)])
    options = {"report_level": 5, "halt_level": 2, "file_insertion_enabled": True, "raw_enabled": True}
    page = docutils.core.publish_parts(text, writer="html5", settings_overrides=options)["body"]
    shown = html.unescape(re.sub(r"<style>.*?</style>|<[^>]+>", "", page, flags=re.DOTALL))
    assert f"Models: {' '.join(label.split())}." in " ".join(shown.split())
    assert "<script" not in page and "root:x:0" not in page


@pytest.mark.parametrize("name", PRINTED)
def test_a_picture_draws_it_literally(name):
    from matplotlib.figure import Figure

    label = figures._literal(PRINTED[name][0])
    figure = Figure()
    axes = figure.add_subplot(title=label)
    axes.plot([0, 1], label=label)
    axes.legend()
    figure.savefig("/dev/null", format="pdf")
    assert len(axes.get_legend().get_texts()) == 1, "a label that begins with _ would be left out"
    assert axes.title._preprocess_math(label)[1] is False
