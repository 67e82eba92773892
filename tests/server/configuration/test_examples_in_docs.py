"""Configuration files in the pages of docs/ are legal, as a reader who copies one expects."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from millstream.model.errors import StartRefused
from millstream.server.configuration.document import configuration_of, parse_document, role_of
from millstream.server.configuration.roles import ROLES

DOCS = Path(__file__).parent.parent.parent.parent / "docs"
BLOCK = re.compile(r"^```toml\n(.*?)^```", re.DOTALL | re.MULTILINE)
OF_OTHERS = {"ingestion.md"}
"""Pages whose files are of another command."""

EXAMPLES = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in sorted(DOCS.rglob("*.md"))
    if page.name not in OF_OTHERS
    for number, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize("block", EXAMPLES)
def test_a_configuration_file_of_a_page_is_legal(block: str) -> None:
    document = parse_document(block.encode(), "the page")
    role = role_of(document, "the page")
    # Without a role it is a part of a file, as of any role that has the setting.
    kinds = [ROLES[role]] if role is not None else list(ROLES.values())
    failures = []
    for kind in kinds:
        try:
            configuration_of(kind, document, "the page")
        except StartRefused as error:
            failures.append(str(error))
    assert len(failures) < len(kinds), failures
