"""Searches answer as the functions do that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.streams.dimension.builder import TableBuilder
from millstream.streams.dimension.index_key import IndexKey, IndexKind
from millstream.streams.dimension.table import DimensionTable
from millstream.streams.functions.text.networks import in_networks

NETWORKS = [
    *(
        "10.0.0.0/8",
        "10.0.0.1/8",
        "10.1.2.3",
        "0.0.0.0/0",
        "::/0",
        "2001:db8::/32",
        "2001:db8::1",
        "bad",
        "",
        "10.0.0/8",
    ),
    *("10.0.0.0/33", "10.0.0.0/255.0.0.0", "10.0.0.0/0.255.255.255", " 10.0.0.0/8", "010.0.0.0/8", "10.0.0.0/08", "/8"),
    *("fe80::1%eth0", "fe80::/10", "192.168.0.0/16", None),
]
ADDRESSES = [
    *(
        "10.1.2.3",
        "10.0.0.1",
        "9.9.9.9",
        "2001:db8::1",
        "2001:DB8:0::1",
        "::ffff:10.1.2.3",
        "::ffff:a01:203",
        "bad",
        "",
    ),
    *("10.1.2.3 ", "010.1.2.3", "fe80::1%eth0", "fe80::1", "10.1.2.3/32", "192.168.1.1", "::1", None),
]
STARTS = ["", "a", "ab", "ä", "𝄞", "a" * 300, "b ", None]
TEXTS = ["abc", "", "ä𝄞", "𝄞x", "a" * 301, "b", None]


def pairs(
    directory: Path, kind: IndexKind, held: Sequence[str | None], asked: Sequence[str | None]
) -> set[tuple[str | None, str | None]]:
    """What values find in a table of one column."""
    schema, key = pa.schema([("held", pa.string())]), IndexKey(kind, ("held",))
    builder = TableBuilder(directory / "table", schema, [key])
    builder.add(pa.RecordBatch.from_pydict({"held": held}, schema))
    builder.finish()
    table = DimensionTable.open(directory / "table")
    found = table.find(key, [pa.array(asked, pa.string())])
    texts = table.take(found.row).column("held").to_pylist()
    return {(asked[probe], text) for probe, text in zip(found.probe.tolist(), texts, strict=True)}


def test_a_network_holds_the_addresses_that_cidr_match_says(tmp_path: Path) -> None:
    wanted = {
        (address, network)
        for address in ADDRESSES
        for network in NETWORKS
        if address is not None and network is not None and in_networks(address, network) is True
    }
    assert len(wanted) > 30
    assert pairs(tmp_path, IndexKind.NETWORK, NETWORKS, ADDRESSES) == wanted


@pytest.mark.parametrize("network", ["::ffff:10.0.0.0/104", "::ffff:10.1.2.3"])
def test_a_network_of_ipv4_that_is_written_as_ipv6_is_one_of_ipv4(network: str, tmp_path: Path) -> None:
    asked = ["10.1.2.3", "::ffff:10.1.2.3", "11.0.0.0"]
    assert pairs(tmp_path, IndexKind.NETWORK, [network], asked) == {(one, network) for one in asked[:2]}


def test_a_prefix_is_what_startswith_says(tmp_path: Path) -> None:
    wanted = {
        (text, start)
        for text in TEXTS
        for start in STARTS
        if text is not None and start is not None and text.startswith(start)
    }
    assert pairs(tmp_path, IndexKind.PREFIX, STARTS, TEXTS) == wanted
