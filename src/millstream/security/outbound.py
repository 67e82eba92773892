"""Decides which addresses the product may call on a user's behalf: public ones, and explicitly allowed ones.

A server that calls what users name could else be made to ask its own machine, its neighbours or the metadata service
of its cloud. Addresses are checked after the name was resolved, and the connection goes to the one that was checked.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from millstream.security.policy import check_source

__all__ = ["OutboundRule"]


class OutboundRule:
    """Public addresses, and those of `networks` (addresses and CIDR). Raises ILLEGAL_POLICY for one that is neither."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks = [ip_network(check_source(text)) for text in networks]

    def allows(self, host: str) -> bool:
        """Whether the numeric address may be called."""
        try:
            address = _inner(ip_address(host.partition("%")[0]))
        except ValueError:
            return False
        if any(address in network for network in self._networks):
            return True
        return address.is_global and not address.is_multicast and not address.is_reserved


def _inner(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 one stands for: mapped, 6to4, Teredo or NAT64."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


_NAT64 = ip_network("64:ff9b::/96")
