"""What of a row stands in an index by hashes, and what of a probe is looked up there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.streams.dimension.addresses import IPV4, addresses_of, masked_words, networks_of
from millstream.streams.dimension.index_key import IndexKind, Numbers
from millstream.streams.dimension.key_values import KeyFamily, KeyValues, Texts, key_values

__all__ = ["KeyTerm", "KeyTerms", "same_terms", "terms_for"]


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
