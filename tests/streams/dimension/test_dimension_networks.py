"""Rows whose network holds an address, and rows whose text begins another text, against comparing with each."""

from __future__ import annotations

import ipaddress
import tempfile
from pathlib import Path

import pyarrow as pa
from dimension_samples import FewHashes, built, pairs
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import scaled
from millstream.streams.dimension.index_key import IndexKey, IndexKind
from millstream.streams.dimension.key_terms import addresses_of
from millstream.streams.functions.text.networks import in_networks

BY_NETWORK = IndexKey(IndexKind.NETWORK, ("text",))
BY_PREFIX = IndexKey(IndexKind.PREFIX, ("text",))

IPV4 = st.integers(0, 2**32 - 1).map(lambda one: str(ipaddress.IPv4Address(one)))
NEAR = st.integers(0, 1023).map(lambda one: str(ipaddress.IPv4Address(0x0A000000 + one)))
MAPPED = NEAR.map(lambda text: f"::ffff:{text}")
IPV6 = st.integers(0, 1023).map(lambda one: str(ipaddress.IPv6Address(0xFE80 << 112 | one << 60 | one)))
BAD = st.sampled_from(
    ["", "10.0.0", "10.0.0.256", "010.0.0.1", "1.2.3.4.5", "x", "10.0.0.1/33", "fe80::/129", ":::", "1..2.3"]
)
ADDRESSES = st.none() | NEAR | IPV4 | MAPPED | IPV6 | BAD
NETWORKS = (
    st.tuples(NEAR, st.integers(0, 32)).map(lambda one: f"{one[0]}/{one[1]}")
    | st.tuples(IPV6, st.integers(0, 128)).map(lambda one: f"{one[0]}/{one[1]}")
    | st.tuples(MAPPED, st.integers(96, 128)).map(lambda one: f"{one[0]}/{one[1]}")
    | ADDRESSES
)


def folded(text: str | None) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        network = ipaddress.ip_network((text or "").strip(), strict=False)
    except ValueError:
        return None
    mapped = network.network_address.ipv4_mapped if isinstance(network, ipaddress.IPv6Network) else None
    if mapped is not None and network.prefixlen >= 96:
        return ipaddress.ip_network((mapped, network.prefixlen - 96))
    return network


def holds(row: str | None, probe: str | None) -> bool:
    network, address = folded(row), folded(probe)
    if network is None or address is None or "/" in (probe or ""):
        return False
    return network.version == address.version and address.network_address in network


def rows_of(texts: list[str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(texts, pa.string()), pa.array(range(len(texts)))], ["text", "id"])


@given(rows=st.lists(NETWORKS, max_size=30), probes=st.lists(NETWORKS, max_size=20), verify=st.booleans())
@settings(deadline=None, max_examples=scaled(80))
def test_every_network_of_an_address_is_found(rows: list[str | None], probes: list[str | None], verify: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        hashing = {"hashing": FewHashes} if verify else {}
        table = built(Path(directory) / "t", rows_of(rows), BY_NETWORK, verify=verify, **hashing)
        found = table.find(BY_NETWORK, [pa.array(probes, pa.string())])
        wanted = [(at, row) for at, probe in enumerate(probes) for row, text in enumerate(rows) if holds(text, probe)]
        assert pairs(table, found, "id") == sorted(wanted, key=repr)


@given(rows=st.lists(NETWORKS, max_size=30), probes=st.lists(ADDRESSES, max_size=20))
@settings(deadline=None, max_examples=scaled(80))
def test_a_network_is_found_where_cidr_match_says_that_it_holds_the_address(
    rows: list[str | None], probes: list[str | None]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        table = built(Path(directory) / "t", rows_of(rows), BY_NETWORK)
        found = table.find(BY_NETWORK, [pa.array(probes, pa.string())])
        wanted = [
            (at, row)
            for at, probe in enumerate(probes)
            for row, text in enumerate(rows)
            if probe is not None and text is not None and in_networks(probe, text)
        ]
        assert pairs(table, found, "id") == sorted(wanted, key=repr)


@given(texts=st.lists(ADDRESSES | st.text(alphabet="0123456789./:af ", max_size=18), max_size=20))
@settings(deadline=None, max_examples=scaled(150))
def test_a_text_is_an_address_where_python_says_so(texts: list[str | None]) -> None:
    found = addresses_of(pa.array(texts, pa.string()))
    for place, text in enumerate(texts):
        wanted = None if "/" in (text or "") else folded(text)
        assert bool(found.valid[place]) == (wanted is not None), text
        if wanted is not None:
            number = int(found.high[place]) << 64 | int(found.low[place])
            assert number == int(wanted.network_address), text


def test_the_longest_network_alone_is_found_with_all_rows_that_name_it(tmp_path: Path) -> None:
    networks = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/16", "0.0.0.0/0", "::/0", "10.1.0.0/24"]
    table = built(tmp_path / "t", rows_of(list(networks)), BY_NETWORK)
    probes = pa.array(["10.1.9.9", "10.2.0.1", "9.9.9.9", "fe80::1", None, "::ffff:10.1.0.7"])
    found = table.find(BY_NETWORK, [probes], longest=True)
    assert pairs(table, found, "id") == [(0, 1), (0, 2), (1, 0), (2, 3), (3, 4), (5, 5)]


TEXTS = st.none() | st.text(alphabet="abä", max_size=6) | st.just("a" * 300)


@given(rows=st.lists(TEXTS, max_size=30), probes=st.lists(TEXTS, max_size=20), verify=st.booleans())
@settings(deadline=None, max_examples=scaled(60))
def test_every_text_that_begins_another_is_found(
    rows: list[str | None], probes: list[str | None], verify: bool
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        hashing = {"hashing": FewHashes} if verify else {}
        table = built(Path(directory) / "t", rows_of(rows), BY_PREFIX, verify=verify, **hashing)
        found = table.find(BY_PREFIX, [pa.array(probes, pa.string())])
        wanted = [
            (at, row)
            for at, probe in enumerate(probes)
            for row, text in enumerate(rows)
            if probe is not None and text is not None and probe.startswith(text)
        ]
        assert pairs(table, found, "id") == sorted(wanted, key=repr)


def test_the_longest_prefix_alone_is_found(tmp_path: Path) -> None:
    table = built(tmp_path / "t", rows_of(["", "/api", "/api/v1", "/api/v1", "ä"]), BY_PREFIX)
    probes = pa.array(["/api/v1/x", "/api", "/ap", "äb", "", None])
    found = table.find(BY_PREFIX, [probes], longest=True)
    assert pairs(table, found, "id") == [(0, 2), (0, 3), (1, 1), (2, 0), (3, 4), (4, 0)]
