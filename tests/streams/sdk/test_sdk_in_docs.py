"""The programs in docs/datastream.md can be built as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from millstream.streams.sdk import StreamBuilder

DOCS = Path(__file__).parent.parent.parent.parent / "docs" / "datastream.md"


def test_the_programs_of_the_docs_become_plans() -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    names: dict[str, Any] = {"__name__": "docs"}
    for block in blocks:
        exec(compile(block, str(DOCS), "exec"), names)
    builder = names["builder"]
    assert isinstance(builder, StreamBuilder)
    assert len(builder.plan().sinks) == 9


def test_examples_that_the_docs_name_are_there() -> None:
    named = re.findall(r"\]\(\.\./(examples/[\w./]+)\)", DOCS.read_text())
    assert named
    assert all((DOCS.parent.parent / name).is_file() for name in named)
