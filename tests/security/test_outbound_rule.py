"""Which addresses may be called because a user named them."""

from __future__ import annotations

import pytest

from millstream.model.errors import AccessRefused
from millstream.security.outbound import OutboundRule

PRIVATE = [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.0.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fd00::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "localhost",
    "",
]


@pytest.mark.parametrize("host", PRIVATE)
def test_addresses_of_the_own_network_may_not_be_called_in_any_spelling(host: str) -> None:
    assert not OutboundRule().allows(host)


@pytest.mark.parametrize("host", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_public_addresses_may_be_called(host: str) -> None:
    assert OutboundRule().allows(host)


def test_networks_that_are_allowed_may_be_called() -> None:
    rule = OutboundRule(["10.0.0.0/8", "::1"])
    assert rule.allows("10.1.2.3")
    assert rule.allows("::1")
    assert not rule.allows("192.168.0.1")


def test_what_is_no_network_is_refused() -> None:
    with pytest.raises(AccessRefused):
        OutboundRule(["everything"])
