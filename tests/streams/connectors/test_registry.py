"""The rows of all connectors: what they declare, the code that they name, and that nothing else knows their names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import millstream
from millstream.streams.connectors import kit
from millstream.streams.connectors.opening import code_of
from millstream.streams.connectors.registry import CONNECTORS, connector_of

NAMES = (*CONNECTORS.own, "packed-hits")
CODE = ("source", "sink", "job_source", "job_sink", "lookup")

COMPARED = re.compile(r"""connector(\.name|"\))?\s*(==|!=|in \(|not in \()\s*["'A-Z]""")
"""A comparison of a connector's name with a text or a constant."""


@pytest.mark.parametrize("name", NAMES)
def test_a_row_declares_what_its_code_can_do(name: str) -> None:
    kit.check_declaration(connector_of(name))


@pytest.mark.parametrize("name", NAMES)
def test_the_code_that_a_row_names_is_there(name: str) -> None:
    pytest.importorskip("pyspark", reason="needs the extra streams")
    row = connector_of(name)
    assert all(callable(code_of(place)) for place in (getattr(row, part) for part in CODE) if place)


def test_a_name_of_no_connector_has_a_row_that_can_do_nothing() -> None:
    row = connector_of("nowhere")
    assert not any((row.reads, row.writes, row.looks_up, row.ends_with({})))


def test_a_connector_between_queries_is_none_that_a_table_may_name() -> None:
    assert "packed-hits" not in CONNECTORS
    assert connector_of("packed-hits").reads


def test_no_code_compares_the_name_of_a_connector() -> None:
    root = Path(millstream.__file__).parent
    found = [
        f"{path.relative_to(root)}: {line.strip()}"
        for path in root.rglob("*.py")
        for line in path.read_text().splitlines()
        if COMPARED.search(line)
    ]
    assert found == []
