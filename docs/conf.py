"""The site of the documentation: the pages of docs/ and of the root as they stand, with the README as its first page.

`make docs` builds it strictly: a dead link, a heading that is not there or a page that the README does not link ends the build.
"""

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]

project = "ORCE, reproduced"
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
suppress_warnings = ["toc.not_included"]  # tests/test_docs.py: the README links every page
linkcheck_timeout = 20
linkcheck_retries = 3


def contents(app, name: str, source: list[str]) -> None:
    """The side bar: the pages that the README's index links, in its order."""
    if name == root_doc:
        source[0] += side_bar(source[0])


def side_bar(readme: str) -> str:
    listed = readme.split("\n## Where to go\n")[1].split("\n## ")[0]
    pages = dict.fromkeys(re.findall(r"\]\(([\w/-]+)\.md\)", listed))
    return "\n```{toctree}\n:hidden:\n\n" + "\n".join(pages) + "\n```\n"


def first_page(app, error) -> None:
    """A web server shows index.html."""
    if error is None and app.builder.name == "html":
        shutil.copy(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def setup(app) -> None:
    app.connect("source-read", contents)
    app.connect("build-finished", first_page)
