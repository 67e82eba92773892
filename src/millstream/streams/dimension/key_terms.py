"""The terms of rows in a hash index, also for addresses and networks, and the terms of a probe."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.streams.dimension.index_key import IndexKind, Numbers
from millstream.streams.dimension.key_values import Flags, KeyFamily, KeyValues, Texts, Unsigned, Words, key_values

__all__ = [
    "IPV4",
    "Addresses",
    "KeyTerm",
    "KeyTerms",
    "addresses_of",
    "masked_words",
    "networks_of",
    "same_terms",
    "terms_for",
]


IPV4: Final = 129
"""Lengths of prefixes from here on are those of IPv4: 129 is 0.0.0.0/0, 161 a single address."""

_IPV4_BITS: Final = 32
_IPV6_BITS: Final = 128
_MAPPED: Final = 0xFFFF
_MAPPED_BITS: Final = 96
_HALF: Final = np.uint64(32)
_LOW_WORD: Final = np.uint64(2**32 - 1)
_MASK64: Final = 2**64 - 1

_MOST_CHARACTERS: Final = 15
_LEAST_CHARACTERS: Final = 7
_DOT: Final = 46
_ZERO: Final = 48

_IPV4_NETWORK: Final = r"^(?P<address>[0-9.]{7,15})/(?P<bits>[0-9]{1,2})$"


class Addresses(NamedTuple):
    """Addresses as 128 bits, those of IPv4 in the lowest 32; `lengths` counts the bits of networks, see `IPV4`."""

    high: Unsigned
    low: Unsigned
    lengths: Numbers
    valid: Flags

    def take(self, places: Numbers) -> Addresses:
        """Those at these places."""
        return Addresses(self.high[places], self.low[places], self.lengths[places], self.valid[places])


def addresses_of(texts: pa.Array) -> Addresses:
    """Single addresses."""
    found = _ipv4_of(Texts(texts))
    _add_others(texts, found, networks=False)
    return found


def networks_of(texts: pa.Array) -> Addresses:
    """Networks in the form `10.0.0.0/8`, with or without bits beyond the prefix, or single addresses."""
    parts = pc.extract_regex(texts.cast(pa.large_string()), _IPV4_NETWORK)
    bits = pc.fill_null(pc.struct_field(parts, [1]), str(_IPV4_BITS))
    lengths = np.where(pc.not_equal(bits, ""), pc.if_else(pc.equal(bits, ""), "32", bits).cast(pa.int64()), _IPV4_BITS)
    found = _ipv4_of(Texts(pc.if_else(parts.is_valid(), pc.struct_field(parts, [0]), texts.cast(pa.large_string()))))
    found = found._replace(lengths=lengths + IPV4, valid=found.valid & (lengths <= _IPV4_BITS))
    _add_others(texts, found, networks=True)
    return found


def _ipv4_of(texts: Texts) -> Addresses:
    """Those that are written as four numbers with dots; the others are not valid yet."""
    content, starts, lengths = texts.spans
    count = len(lengths)
    padded = np.zeros(len(content) + _MOST_CHARACTERS, np.uint8)
    padded[: len(content)] = content
    windows = np.lib.stride_tricks.as_strided(padded, (len(content) + 1, _MOST_CHARACTERS), (1, 1))
    characters = np.ascontiguousarray(windows[starts].T)
    good = texts.valid & (lengths >= _LEAST_CHARACTERS) & (lengths <= _MOST_CHARACTERS)
    address, number = np.zeros(count, np.int64), np.zeros(count, np.int64)
    digits, dots = np.zeros(count, np.int8), np.zeros(count, np.int8)
    for place in range(_MOST_CHARACTERS):
        inside = lengths > place
        digit = characters[place] - np.uint8(_ZERO)
        is_digit, is_dot = inside & (digit <= 9), inside & (characters[place] == _DOT)
        # No other characters, no empty number, no zero before other digits.
        good &= ~inside | (is_digit & ((digits == 0) | (number > 0))) | (is_dot & (digits > 0))
        address = np.where(is_dot, address << 8 | number, address)
        number = np.where(is_digit, number * 10 + digit, np.where(is_dot, 0, number))
        digits = np.where(is_digit, digits + 1, np.where(is_dot, 0, digits))
        dots += is_dot
        good &= number <= 255
    good &= (dots == 3) & (digits > 0)
    low = np.where(good, address << 8 | number, 0).astype(np.uint64)
    return Addresses(np.zeros(count, np.uint64), low, np.full(count, IPV4 + _IPV4_BITS, np.int64), good)


def _add_others(texts: pa.Array, found: Addresses, *, networks: bool) -> None:
    """What is not plain IPv4, each different text once."""
    places = np.flatnonzero(~found.valid)
    if not len(places):
        return
    encoded = texts.take(pa.array(places)).dictionary_encode()
    read = [_parse_address(text) if networks or "/" not in text else None for text in encoded.dictionary.to_pylist()]
    table = np.array([[one[0] >> 64, one[0] & _MASK64] if one else [0, 0] for one in read] or [[0, 0]], np.uint64)
    lengths = np.array([one[1] if one else -1 for one in read] or [-1], np.int64)
    index = pc.fill_null(encoded.indices, 0).to_numpy()
    high_low = table[index]
    found.high[places], found.low[places] = high_low[:, 0], high_low[:, 1]
    found.lengths[places] = lengths[index]
    found.valid[places] = (lengths[index] >= 0) & encoded.is_valid().to_numpy(zero_copy_only=False)


def _parse_address(text: str) -> tuple[int, int] | None:
    """The number and length of one address or network."""
    try:
        return _unmap(int.from_bytes(socket.inet_pton(socket.AF_INET6, text), "big"), _IPV6_BITS)
    except (OSError, ValueError):
        pass
    try:
        network = ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        return None
    if network.version == 4:
        return int(network.network_address), IPV4 + network.prefixlen
    return _unmap(int(network.network_address), network.prefixlen)


def _unmap(number: int, bits: int) -> tuple[int, int]:
    if bits >= _MAPPED_BITS and number >> _IPV4_BITS == _MAPPED:
        return number & (2**_IPV4_BITS - 1), IPV4 + bits - _MAPPED_BITS
    return number, bits


def masked_words(addresses: Addresses, lengths: Numbers) -> Words:
    """The networks of so many bits that the addresses are in, as words of a key."""
    bits = np.where(lengths >= IPV4, lengths - IPV4 + _MAPPED_BITS, lengths)
    words = np.zeros((len(bits), 5), np.uint64)
    words[:, 0] = lengths.astype(np.uint64) + np.uint64(1)
    for first, half, place in ((64, addresses.low, 1), (0, addresses.high, 3)):
        left = np.clip(bits - first, 0, 64).astype(np.uint64)
        # A shift by all 64 bits is not defined.
        mask = np.where(left == 0, np.uint64(0), np.uint64(_MASK64) << (np.uint64(64) - np.maximum(left, np.uint64(1))))
        kept = half & mask
        words[:, place] = kept & _LOW_WORD
        words[:, place + 1] = kept >> _HALF
    return Words(words, addresses.valid)


class KeyTerm(NamedTuple):
    """What is looked up for the probes at `places`, or for all of them."""

    places: Numbers | None
    values: list[KeyValues]


class KeyTerms(Protocol):
    """The way of one kind of index."""

    def of_rows(self, columns: Sequence[pa.Array]) -> tuple[list[KeyValues], Numbers | None]:
        """The key of each row, and its length where keys have one."""
        ...

    def of_probes(self, columns: Sequence[pa.Array], lengths: Sequence[int]) -> Iterator[KeyTerm]:
        """What to look up, the longest keys first; `lengths` are those that the index has."""
        ...


class _EqualTerms:
    def __init__(self, families: Sequence[KeyFamily]) -> None:
        self._families = families

    def of_rows(self, columns: Sequence[pa.Array]) -> tuple[list[KeyValues], Numbers | None]:
        return [key_values(one, family) for one, family in zip(columns, self._families, strict=True)], None

    def of_probes(self, columns: Sequence[pa.Array], lengths: Sequence[int]) -> Iterator[KeyTerm]:
        yield KeyTerm(None, self.of_rows(columns)[0])


class _NetworkTerms:
    def of_rows(self, columns: Sequence[pa.Array]) -> tuple[list[KeyValues], Numbers | None]:
        networks = networks_of(columns[0])
        return [masked_words(networks, networks.lengths)], np.where(networks.valid, networks.lengths, -1)

    def of_probes(self, columns: Sequence[pa.Array], lengths: Sequence[int]) -> Iterator[KeyTerm]:
        addresses = addresses_of(columns[0])
        for is_ipv4 in (False, True):
            places = np.flatnonzero(addresses.valid & ((addresses.lengths >= IPV4) == is_ipv4))
            some = addresses.take(places)
            for length in sorted(lengths, reverse=True):
                if len(places) and (length >= IPV4) == is_ipv4:
                    yield KeyTerm(places, [masked_words(some, np.full(len(places), length))])


class _PrefixTerms:
    def of_rows(self, columns: Sequence[pa.Array]) -> tuple[list[KeyValues], Numbers | None]:
        texts = Texts(columns[0])
        return [texts], np.where(texts.valid, texts.spans[2], -1)

    def of_probes(self, columns: Sequence[pa.Array], lengths: Sequence[int]) -> Iterator[KeyTerm]:
        texts = Texts(columns[0])
        sizes = texts.spans[2]
        for length in sorted(lengths, reverse=True):
            places = np.flatnonzero(texts.valid & (sizes >= length))
            if len(places):
                yield KeyTerm(places, [Texts(pc.binary_slice(texts.array.take(pa.array(places)), 0, length))])


def terms_for(kind: IndexKind, families: Sequence[KeyFamily]) -> KeyTerms:
    """The way of an index of that kind; `families` are those of an EQUAL index's columns."""
    if kind is IndexKind.EQUAL:
        return _EqualTerms(families)
    return _NetworkTerms() if kind is IndexKind.NETWORK else _PrefixTerms()


def same_terms(mine: Sequence[KeyValues], others: Sequence[KeyValues]) -> np.ndarray:
    """Which keys are equal."""
    same = np.ones(len(mine[0].valid), np.bool_)
    for one, other in zip(mine, others, strict=True):
        same &= one.same(other)
    return same
