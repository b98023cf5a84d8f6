"""The pages of the documentation, taken apart: their links, code blocks and the words set as code."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from conftest import ROOT
from markdown_it import MarkdownIt

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NOT_RUN = re.compile(r"<!-- not run: (.+?) -->", re.DOTALL)
FILE = re.compile(r"`([^`\s]+)`:$")


@dataclass(frozen=True)
class Block:
    """A code block: `file` is the name that the line before it states, `reason` why its commands are not run."""

    page: str
    line: int
    language: str
    text: str
    file: str | None = None
    reason: str | None = None

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def tokens(page: Path) -> list:
    return MarkdownIt().enable("table").parse(page.read_text())


def inline(page: Path, kind: str) -> Iterator:
    """All inline tokens of a kind: link_open, image, code_inline, text."""
    for token in tokens(page):
        yield from (child for child in token.children or [] if child.type == kind)


def blocks(page: Path) -> list[Block]:
    found, before, mark = [], "", None
    for token in tokens(page):
        if token.type in ("fence", "code_block"):
            file, reason = FILE.search(before), NOT_RUN.search(mark or "")
            language, why = (token.info.split() or [""])[0], reason and " ".join(reason[1].split())
            found.append(Block(page.name, token.map[0] + 1, language, token.content, file and file[1], why))
        if token.type in ("fence", "code_block", "inline"):
            before, mark = token.content if token.type == "inline" else "", None
        if token.type == "html_block":
            mark = token.content
    return found


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings get where it is shown."""
    every = tokens(page)
    titles = [every[i + 1].content for i, token in enumerate(every) if token.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def copy_of_the_project(folder: Path) -> Path:
    """A copy without results, as a fresh checkout has it."""
    left_out = (
        ".git", ".venv", "results", "runs", "paper_tables", ".*_cache", "__pycache__", ".snakemake", "*.egg-info",
    )  # fmt: skip
    return shutil.copytree(ROOT, folder / "project", ignore=shutil.ignore_patterns(*left_out), symlinks=True)


def write_files(page: Path, folder: Path) -> None:
    """Write the page's blocks that state a file name."""
    for block in blocks(page):
        if block.file:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
