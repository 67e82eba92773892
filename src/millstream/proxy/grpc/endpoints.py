"""Addresses as clients dial them."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

from millstream.model.errors import NameRefused
from millstream.model.message import Address
from millstream.protocol.grpc import messages as m

__all__ = ["MAX_ADDRESSES", "Advertised", "endpoints_of"]

MAX_ADDRESSES = 32
"""Addresses of one access point at most: every queue of a route may repeat them."""

MAX_HOST_CHARACTERS = 255
"""Characters of a host's name at most."""


@dataclass(frozen=True, slots=True)
class Advertised:
    """The address of this service for clients. `as_reached` prefers the one by which each client says it came: a
    server that listens on all addresses does not know which of them its clients can dial."""

    address: Address
    as_reached: bool = False

    def to(self, reached: m.Endpoints) -> m.Endpoints:
        """What to tell a client whose access point is `reached`; ILLEGAL_ACCESS_POINT where that is none."""
        if len(reached.addresses) > MAX_ADDRESSES or any(map(_is_illegal, reached.addresses)):
            raise NameRefused(
                "ILLEGAL_ACCESS_POINT", f"The access point of {len(reached.addresses)} addresses cannot be dialled."
            )
        return reached if self.as_reached and reached.addresses else endpoints_of(self.address)


def _is_illegal(address: m.Address) -> bool:
    return not 0 < len(address.host) <= MAX_HOST_CHARACTERS or not 0 < address.port < 65_536


def endpoints_of(address: Address) -> m.Endpoints:
    """One address with the scheme that fits its host: IPv4, IPv6 or a domain name."""
    try:
        scheme = m.IPv6 if ip_address(address.host).version == 6 else m.IPv4
    except ValueError:
        scheme = m.DOMAIN_NAME
    return m.Endpoints(scheme=scheme, addresses=[m.Address(host=address.host, port=address.port)])
