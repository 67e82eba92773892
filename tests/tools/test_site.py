"""`make site` builds the documentation without a warning."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="mkdocs comes with the extra dev")

from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from site_pages import site_links  # noqa: E402

REPOSITORY = "https://example.com/blob/main"


@pytest.mark.long
def test_the_site_is_built_without_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path))
    with caplog.at_level(logging.WARNING, logger="mkdocs"):
        build(config)
    assert [record.getMessage() for record in caplog.records] == []
    assert (tmp_path / "glossary" / "index.html").is_file()
    assert (tmp_path / "search" / "search_index.json").is_file()


def test_what_only_looks_like_a_link_in_code_stays() -> None:
    text = "`REGEXP('[a](b)')`\n\n```\n[c](d)\n```\n"
    assert site_links(text, "functions.md", REPOSITORY) == text


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("sql.md", "queries.md#from", "queries.md#from"),
        ("internals/message.md", "../durability.md", "../durability.md"),
        ("internals/message.md", "../../ARCHITECTURE.md", "../architecture.md"),
        ("rules.md", "../examples/rules", f"{REPOSITORY}/examples/rules"),
        ("architecture.md", "docs/sql.md", "sql.md"),
        ("changelog.md", "crash/README.md#s1", f"{REPOSITORY}/crash/README.md#s1"),
        ("rules.md", "https://example.com/a", "https://example.com/a"),
        ("rules.md", "#fields", "#fields"),
    ],
)
def test_a_link_leads_to_a_page_of_the_site_or_to_the_repository(page: str, link: str, expected: str) -> None:
    assert site_links(f"See [it]({link}).", page, REPOSITORY) == f"See [it]({expected})."
