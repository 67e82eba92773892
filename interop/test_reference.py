"""The same raw requests to a reference broker and to ours: what differs is meant, or red."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.driver import Missing
from interop.reference.comparison import compare
from interop.reference.scripts import SCRIPTS
from interop.reference.servers import ReferenceServers


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceServers]:
    try:
        servers = ReferenceServers(tmp_path_factory.mktemp("reference"))
    except Missing as missing:
        pytest.skip(f"the reference broker cannot run here: {missing}")
    with servers:
        yield servers


@pytest.mark.parametrize("script", SCRIPTS)
def test_answers_differ_from_the_references_only_where_it_is_meant(
    script: str, reference: ReferenceServers, tmp_path: Path
) -> None:
    found = compare(script, reference, tmp_path / "data")
    assert not found, "\n".join(map(str, found))
