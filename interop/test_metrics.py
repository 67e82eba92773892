"""The Prometheus pages of a reference broker and of ours after the same work: names and labels."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from interop.driver import Missing
from interop.reference.metric_names import SCRIPTS_OF_PAGES, page_names, unmeant
from interop.reference.servers import ReferenceServers
from interop.reference.transcript import Servers
from interop.reference.watched import page_after
from millstream.server.child import ServerProcess


def test_names_and_labels_of_metrics_are_those_of_the_reference_but_where_it_is_meant(tmp_path: Path) -> None:
    try:
        reference = ReferenceServers(tmp_path / "reference")
    except Missing as missing:
        pytest.skip(f"the reference broker cannot run here: {missing}")
    with reference:
        at = Servers(reference.broker, reference.nameserver)
        theirs = asyncio.run(page_after(SCRIPTS_OF_PAGES, at, reference.metrics_page))
    with ServerProcess(tmp_path / "data") as server:
        at = Servers(server.addresses.broker, server.addresses.nameserver)
        ours = asyncio.run(page_after(SCRIPTS_OF_PAGES, at, f"http://{server.addresses.metrics}/metrics"))
    found = unmeant(page_names(theirs), page_names(ours))
    assert not found, "\n".join(found)
