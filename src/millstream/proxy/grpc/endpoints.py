"""Addresses as clients dial them."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

from millstream.model.message import Address
from millstream.protocol.grpc import messages as m

__all__ = ["Advertised", "endpoints_of"]


@dataclass(frozen=True, slots=True)
class Advertised:
    """The address of this service for clients. `as_reached` prefers the one by which each client says it came: a
    server that listens on all addresses does not know which of them its clients can dial."""

    address: Address
    as_reached: bool = False

    def to(self, reached: m.Endpoints) -> m.Endpoints:
        """What to tell a client whose access point is `reached`."""
        return reached if self.as_reached and reached.addresses else endpoints_of(self.address)


def endpoints_of(address: Address) -> m.Endpoints:
    """One address with the scheme that fits its host: IPv4, IPv6 or a domain name."""
    try:
        scheme = m.IPv6 if ip_address(address.host).version == 6 else m.IPv4
    except ValueError:
        scheme = m.DOMAIN_NAME
    return m.Endpoints(scheme=scheme, addresses=[m.Address(host=address.host, port=address.port)])
