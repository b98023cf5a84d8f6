"""The site of the documentation: the pages of docs/ and of the root as they stand, with the README as its first page.

`make docs` builds it strictly: a dead link or a heading that is not there ends the build.
"""

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]

project = "ORCE, reimplemented from the paper"
root_doc = "README"
include_patterns = ["*.md", "docs/**.md"]
exclude_patterns = [".*", "site", "results", "evidence", "tests", "workflow"]
extensions = ["myst_parser", "sphinxcontrib.mermaid"]
myst_heading_anchors = 4  # as on GitHub
myst_fence_as_directive = ["mermaid"]
html_theme = "furo"
html_title = project
html_show_sphinx = False
html_copy_source = False
nitpicky = True
suppress_warnings = ["toc.not_included"]  # tests/test_docs.py: the side bar has every page
linkcheck_timeout = 20
linkcheck_retries = 3


# The side bar: a name and the pages of each group, as paths from the root.
BAR = {
    "Use it": "which measure given grading server metrics",
    "Reproduce": "one-node slurm engines one-cell outputs performance downloads choices glossary troubleshooting",
    "Extend": "tutorial extending configuration architecture removed ../CONTRIBUTING ../CHANGELOG ../SECURITY",
    "Findings": "evidence field evidence/order evidence/real-questions evidence/laboratory evidence/smollm2 evidence/published evidence/items",
}


def contents(app, name: str, source: list[str]) -> None:
    """Each group, of the pages that are there, under the first page."""
    if name == root_doc:
        for group, names in BAR.items():
            pages = [page for page in names.split() if (Path(app.confdir) / f"{page}.md").exists()]
            listed = "\n".join(f"docs/{page}".replace("docs/../", "") for page in pages)
            if listed:
                source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {group}\n\n{listed}\n```\n"


def first_page(app, error) -> None:
    """A web server shows index.html."""
    if error is None and app.builder.name == "html":
        shutil.copy(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def setup(app) -> None:
    app.connect("source-read", contents)
    app.connect("build-finished", first_page)
