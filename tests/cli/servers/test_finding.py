from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.cli.servers.finding import (
    MAX_CLOCK_SKEW_MS,
    SLOW_SYNC_MS,
    Finding,
    Severity,
    of_broker,
    of_nameservers,
    of_versions,
)
from millstream.client.cluster_operations import BrokerStatus, NameserverStatus, RegisteredBroker
from millstream.model.errors import Refused, Unreachable
from millstream.protocol.remoting.administration.broker_report import BrokerReport

PLACE = RegisteredBroker("c", "b", 0, "10.0.0.1:10911")
GIB = 2**30


def report(**changed: object) -> BrokerReport:
    told: dict[str, object] = {"disk_bytes": 100 * GIB, "disk_free_bytes": 50 * GIB, "sync_ms": 1.0, **changed}
    return BrokerReport("b", "c", PLACE.address, "0.1.0", 0, **told)  # type: ignore[arg-type]


def look(told: BrokerReport | None, *, ahead_ms: float = 0.0) -> BrokerStatus:
    return BrokerStatus(PLACE, told, None, 2.0, ahead_ms)


def bad(findings: list[Finding]) -> list[tuple[str, Severity]]:
    return [(one.subject, one.state) for one in findings if one.state is not Severity.OK]


def test_a_broker_that_is_well_has_no_bad_finding() -> None:
    assert bad(of_broker(look(report()), asked_from_afar=True)) == []
    roomy = look(report(descriptor_limit=20_000, descriptors_in_use=400))
    assert bad(of_broker(roomy, asked_from_afar=True)) == []
    words = [one.words for one in of_broker(roomy, asked_from_afar=True)]
    assert "400 of 20,000 are in use, 15,904 may be connections" in words


@pytest.mark.parametrize(
    ("told", "subject", "state"),
    [
        (report(failure="The log could not be written."), "broker b", Severity.PROBLEM),
        (report(is_drained=True), "broker b", Severity.WARNING),
        (report(disk_free_bytes=GIB), "broker b: disk", Severity.WARNING),
        (report(disk_free_bytes=GIB, is_disk_full=True), "broker b: disk", Severity.PROBLEM),
        (report(sync_ms=SLOW_SYNC_MS + 1), "broker b: sync", Severity.WARNING),
        (report(sync_ms=None), "broker b: sync", Severity.PROBLEM),
        (report(descriptor_limit=1024, descriptors_in_use=40), "broker b: descriptors", Severity.WARNING),
        (report(descriptor_limit=20_000, descriptors_in_use=14_000), "broker b: descriptors", Severity.WARNING),
        (report(descriptor_limit=20_000, descriptors_in_use=16_000), "broker b: descriptors", Severity.PROBLEM),
    ],
)
def test_what_is_wrong_with_a_broker_is_one_finding_with_a_remedy(
    told: BrokerReport, subject: str, state: Severity
) -> None:
    found = of_broker(look(told), asked_from_afar=True)
    assert bad(found) == [(subject, state)]
    assert all(one.remedy for one in found if one.state is not Severity.OK)


@pytest.mark.parametrize("ahead_ms", [MAX_CLOCK_SKEW_MS + 2, -MAX_CLOCK_SKEW_MS - 2])
def test_clocks_that_differ_are_a_problem(ahead_ms: float) -> None:
    assert bad(of_broker(look(report(), ahead_ms=ahead_ms), asked_from_afar=True)) == [
        ("broker b: clock", Severity.PROBLEM)
    ]
    assert bad(of_broker(look(report(), ahead_ms=ahead_ms / 2), asked_from_afar=True)) == []


def test_a_loopback_address_that_is_announced_to_other_machines_is_a_problem() -> None:
    for address in ("127.0.0.1:1", "localhost:1", "[::1]:1"):
        near = replace(look(report()), broker=replace(PLACE, address=address))
        assert bad(of_broker(near, asked_from_afar=True)) == [("broker b", Severity.PROBLEM)]
        assert bad(of_broker(near, asked_from_afar=False)) == []


def test_a_broker_that_does_not_answer_is_a_problem_and_one_of_another_make_is_unknown() -> None:
    silent = replace(look(None), failure=Unreachable("10.0.0.1:10911 cannot be reached."))
    assert bad(of_broker(silent, asked_from_afar=True)) == [("broker b", Severity.PROBLEM)]
    other = replace(look(None), failure=Refused("REQUEST_NOT_SUPPORTED", "What?"))
    assert bad(of_broker(other, asked_from_afar=True)) == [("broker b", Severity.UNKNOWN)]


def test_nameservers_that_do_not_answer_or_know_fewer_brokers_are_found() -> None:
    whole = NameserverStatus("a:1", (PLACE,), None, 1.0)
    down = NameserverStatus("b:1", (), Unreachable("b:1 cannot be reached."), 1.0)
    empty = NameserverStatus("c:1", (), None, 1.0)
    assert bad(of_nameservers([whole])) == []
    assert bad(of_nameservers([whole, down])) == [("nameserver b:1", Severity.PROBLEM)]
    assert bad(of_nameservers([whole, empty])) == [("nameserver c:1", Severity.WARNING)]
    assert bad(of_nameservers([empty])) == [("brokers", Severity.PROBLEM)]


def test_versions_that_differ_are_told() -> None:
    assert bad(of_versions("0.1.0", [look(report())])) == []
    assert bad(of_versions("0.2.0", [look(report()), look(None)])) == [("versions", Severity.WARNING)]
