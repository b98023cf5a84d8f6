"""What a release and its visitors meet: GitHub's workflows, the citation, the catalog's entry, the documentation's site."""

import re
import shutil
import subprocess
import sys

import dry_run
import pages
import pytest
import yaml
from conftest import ROOT
from test_workflow import job_counts

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def steps(path) -> list[dict]:
    return [step for job in yaml.safe_load(path.read_text())["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_what_the_checkout_has_and_actions_of_one_content(path):
    """GitHub's runners are not here: `make lint` checks the form, this the commands."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for step in steps(path):
        if "uses" in step:
            assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", step["uses"]), step
        elif step["run"].startswith("make "):
            assert step["run"].split()[1] in targets, step
        elif step["run"].startswith("."):
            assert (ROOT / step["run"]).stat().st_mode & 0o111, step


def test_every_change_is_checked_and_every_night_everything_is():
    ran = {path.stem: [step.get("run") for step in steps(path)] for path in WORKFLOWS}
    assert "make check" in ran["check"] and "make dist" in ran["check"]
    assert ".ci/run" in ran["nightly"] and "make audit" in ran["nightly"]
    assert "make docs" in ran["docs"]


def test_the_citation_is_that_of_the_newest_release():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    released = re.findall(r"^## \[(\d.*?)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert (citation["version"], str(citation["date-released"])) == released[0]


@pytest.mark.slow
def test_the_catalogs_snakefile_plans_what_the_roots_does(tmp_path):
    project = pages.copy_of_the_project(tmp_path)
    plans = [dry_run.snakemake(project, *which, "--cores", "1") for which in ((), ("-s", "workflow/Snakefile"))]
    assert [code for code, _ in plans] == [0, 0], plans
    root, catalog = (job_counts(said) for _, said in plans)
    assert sum(root.values()) > 250
    assert catalog.pop("default") == root.pop("paper_tables") == 1
    assert catalog == root
    (project / "workflow" / "orce" / "__init__.py").write_text("raise SystemExit('the library beside the Snakefile')\n")
    command = [sys.executable, "-m", "snakemake", "-s", "workflow/Snakefile", "-n"]
    said = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False).stderr
    assert "the library beside the Snakefile" in said, said


def build(project, out) -> subprocess.CompletedProcess:
    """As `make docs` does, in the tests' environment."""
    command = ["-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "--conf-dir", "docs", ".", out]
    return subprocess.run([sys.executable, *command], cwd=project, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_site_has_every_page_and_every_picture(tmp_path):
    done = build(ROOT, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    made = {path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*.html")}
    assert {f"docs/{page.stem}.html" for page in pages.PAGES[1:]} | {"README.html", "index.html"} <= made
    first = (tmp_path / "site" / "index.html").read_text()
    for picture in re.findall(r'<img [^>]*src="([^"]+)"', first):
        assert (tmp_path / "site" / picture).is_file(), picture


@pytest.mark.slow
def test_a_dead_link_ends_the_build(tmp_path):
    dead = {"docs/absent.md": "docs/absent", "docs/page.md#missing": "missing", "docs/images/gone.png": "gone.png"}
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "conf.py", tmp_path / "docs")
    (tmp_path / "docs" / "page.md").write_text("# A page\n\nText.\n")
    readme = "# One\n\n{}\n\n## Where to go\n\n- [A page](docs/page.md)\n"
    links = " ".join(f"{'!' * target.endswith('png')}[x]({target})" for target in dead)
    (tmp_path / "README.md").write_text(readme.format(links))
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode == 1
    assert all(any(name in line for line in done.stderr.splitlines()) for name in dead.values()), done.stderr
    (tmp_path / "README.md").write_text(readme.format("no link"))
    assert build(tmp_path, tmp_path / "site").returncode == 0
