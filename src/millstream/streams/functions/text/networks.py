"""IPv4 and IPv6 addresses. An invalid address gives None."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

__all__ = [
    "Address",
    "Network",
    "address_of",
    "in_networks",
    "in_range",
    "ip_of_number",
    "is_ipv4",
    "is_ipv6",
    "is_private",
    "network_of",
    "network_of_text",
    "number_of_ip",
    "number_of_short_ip",
]

_CACHED_NETWORKS = 10_000
_CACHED_ADDRESSES = 10_000
_IPV4_BITS = 32
_PARTS, _PART = 4, 256
_MAPPED_BITS = 96
"""Bits before an address of IPv4 that is written as IPv6."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@lru_cache(maxsize=_CACHED_ADDRESSES)
def address_of(text: str) -> Address | None:
    """The address of a text; one of IPv4 that is written as IPv6 (`::ffff:10.0.0.1`) is one of IPv4."""
    try:
        address = ipaddress.ip_address(text.strip())
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


@lru_cache(maxsize=_CACHED_NETWORKS)
def _network(text: str) -> Network | None:
    """The network of a text; one of IPv4 that is written as IPv6 (`::ffff:10.0.0.0/104`) is one of IPv4."""
    try:
        network = ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        return None
    mapped = network.network_address.ipv4_mapped if isinstance(network, ipaddress.IPv6Network) else None
    if mapped is None or network.prefixlen < _MAPPED_BITS:
        return network
    return ipaddress.IPv4Network((mapped, network.prefixlen - _MAPPED_BITS))


def network_of_text(text: str) -> Network:
    """The network of a text, as `in_networks` reads it. Raises ValueError where it is none."""
    network = _network(text)
    if network is None:
        raise ValueError(f"{text!r} is no network")
    return network


def in_networks(ip: str, *networks: str) -> bool | None:
    """Whether the address is in one of the networks; None if it is none, or if only a wrong network could hold it."""
    address = address_of(ip)
    if address is None:
        return None
    known = [_network(network) for network in networks]
    if any(network is not None and address in network for network in known):
        return True
    return None if None in known else False


def in_range(ip: str, first: str, last: str) -> bool | None:
    """Whether the address lies between two of its own kind, both included."""
    address, low, high = address_of(ip), address_of(first), address_of(last)
    if address is None or low is None or high is None or low.version != high.version:
        return None
    return address.version == low.version and int(low) <= int(address) <= int(high)


def is_private(ip: str) -> bool | None:
    """Whether the address is for private networks, this machine or this link alone."""
    address = address_of(ip)
    return None if address is None else address.is_private or address.is_link_local or address.is_loopback


def is_ipv4(text: str) -> bool:
    """Whether the text is an address in the form `10.0.0.1`."""
    return _version(text) == 4


def is_ipv6(text: str) -> bool:
    """Whether the text is an address in the form `fe80::1`."""
    return _version(text) == 6


def _version(text: str) -> int:
    try:
        return ipaddress.ip_address(text.strip()).version
    except ValueError:
        return 0


def network_of(ip: str, bits: int) -> str | None:
    """The network of the address's leading bits."""
    address = address_of(ip)
    if address is None or not 0 <= bits <= address.max_prefixlen:
        return None
    return str(ipaddress.ip_network((address, bits), strict=False))


def number_of_ip(ip: str) -> int | None:
    """An IPv4 address as a number; None for IPv6, whose numbers are longer than any BIGINT."""
    address = address_of(ip)
    return int(address) if address is not None and address.version == 4 else None


def number_of_short_ip(text: str) -> int | None:
    """The number of an address of IPv4 in one to four parts, of which the last one stands for those that miss."""
    parts = text.split(".")
    if len(parts) > _PARTS or not all(part.isascii() and part.isdigit() and int(part) < _PART for part in parts):
        return None
    *front, last = map(int, parts)
    return sum(part << 8 * (_PARTS - 1 - place) for place, part in enumerate(front)) + last


def ip_of_number(number: int) -> str | None:
    """The IPv4 address of a number."""
    return str(ipaddress.IPv4Address(number)) if 0 <= number < 2**_IPV4_BITS else None
