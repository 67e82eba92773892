"""Links between the pages of the repository lead to files and headings that are there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(?:#([^)\s]+))?\)")


def names_of(pages: list[Path]) -> list[str]:
    return [page.relative_to(ROOT).as_posix() for page in pages]


@cache
def anchors_of(page: Path) -> frozenset[str]:
    """The names that GitHub gives to the page's headings, and those that the page gives itself."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", one) for one in re.findall(r"^#+ +(.+)$", text, re.MULTILINE)]
    named = re.findall(r'<a id="([^"]+)"', text)
    return frozenset([re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings] + named)


def broken_links(page: Path) -> list[str]:
    text = CODE.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))
    broken = []
    for path, anchor in LINK.findall(text):
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            broken.append(f"{path}: no such file")
        elif anchor and anchor not in anchors_of(target):
            broken.append(f"{path}#{anchor}: no such heading")
    return broken


@pytest.mark.parametrize("page", PAGES, ids=names_of(PAGES))
def test_every_link_of_the_page_leads_to_a_file_or_heading(page: Path) -> None:
    assert broken_links(page) == []


def test_a_link_to_nothing_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    shown_as_code = "`x](y)`\n```\n[e](none.md)\n```\n"
    page.write_text(f"# One\n[a](page.md#one) [b](other.md) [c](#two) [d](https://example.com) {shown_as_code}")
    assert broken_links(page) == ["other.md: no such file", "#two: no such heading"]
