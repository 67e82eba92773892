"""The event loop that servers take, and how one finds out which it is."""

from __future__ import annotations

import sys

import pytest

from millstream.cli.servers.doctor import of_event_loop
from millstream.cli.servers.event_loop import describe_loop, loop_factory
from millstream.cli.servers.finding import Severity


@pytest.fixture
def without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)


def test_where_uvloop_is_installed_servers_run_on_it() -> None:
    uvloop = pytest.importorskip("uvloop")
    make = loop_factory()
    assert make is not None
    made = make()
    made.close()
    assert isinstance(made, uvloop.Loop)
    assert describe_loop() == f"uvloop {uvloop.__version__}"


def test_elsewhere_they_run_on_the_standard_loop(without_uvloop: None) -> None:
    assert loop_factory() is None
    assert describe_loop() == "asyncio"


def test_the_doctor_names_the_loop_and_what_makes_servers_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = of_event_loop("uvloop 0.23.0")
    assert (fast.subject, fast.state, fast.words, fast.remedy) == ("event loop", Severity.OK, "uvloop 0.23.0", "")
    monkeypatch.setattr(sys, "platform", "linux")
    usual = of_event_loop("asyncio")
    assert (usual.state, usual.words) == (Severity.OK, "asyncio")
    assert "millstream[fast]" in usual.remedy
    monkeypatch.setattr(sys, "platform", "win32")
    assert of_event_loop("asyncio").remedy == ""
