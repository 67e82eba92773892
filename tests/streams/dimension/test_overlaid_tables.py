"""Tables with overlays answer as a dict does to which the same changes were made, and no version ever changes."""

from __future__ import annotations

import ipaddress
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from crash.file_twins import Died, HastyFiles, MortalFiles
from dimension_samples import FewHashes
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from example_counts import scaled
from millstream.streams.dimension.builder import Hashing, TableBuilder
from millstream.streams.dimension.index_key import IndexKey, IndexKind
from millstream.streams.dimension.key_hash import KeyHash
from millstream.streams.dimension.overlay import (
    LEAST_MERGED,
    MAX_OVERLAY_ROWS,
    OverlaidTable,
    OverlayWriter,
    TableChanges,
    open_version,
    takes_changes,
)
from millstream.streams.dimension.table import DimensionTable
from millstream.streams.errors import DimensionError

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()), pa.field("part", pa.string()), pa.field("name", pa.string()),
        pa.field("low", pa.int32()), pa.field("high", pa.int32()), pa.field("network", pa.string()),
    ]
)  # fmt: skip
PRIMARY = IndexKey.equal("part", "id")
BY_NAME = IndexKey.equal("name")
BY_RANGE = IndexKey(IndexKind.RANGE, ("low", "high"))
BY_NETWORK = IndexKey(IndexKind.NETWORK, ("network",))
BY_START = IndexKey(IndexKind.PREFIX, ("name",))
KEYS = (BY_NAME, BY_RANGE, BY_NETWORK, BY_START)

Row = tuple[Any, ...]
Key = tuple[int, str]

names = st.none() | st.sampled_from(["", "a", "ab", "b", "ä"])
numbers = st.none() | st.integers(0, 6)
networks = st.none() | st.sampled_from(["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "2001:db8::/32", "no network"])
primary_keys = st.tuples(st.integers(0, 4), st.sampled_from(["", "x"]))
contents = st.tuples(names, numbers, numbers, networks)
changes = st.dictionaries(primary_keys, st.none() | contents, max_size=6)


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def built(directory: Path, rows: list[Row], *, hashing: Hashing = KeyHash, keys: tuple[IndexKey, ...] = KEYS) -> Path:
    builder = TableBuilder(
        directory, SCHEMA, (PRIMARY, *keys), hashing=hashing, verify=hashing is FewHashes, files=HastyFiles()
    )
    builder.add(batch_of(rows))
    builder.finish()
    return directory


def changed(
    directory: Path, before: Path, made: dict[Key, Row | None], *, hashing: Hashing = KeyHash, **named: Any
) -> Path:
    keys = pa.RecordBatch.from_pylist([{"id": key[0], "part": key[1]} for key in made], SCHEMA)
    rows = batch_of([(*key, *content) for key, content in made.items() if content is not None])
    writer = OverlayWriter(directory, before, PRIMARY, KEYS, hashing=hashing, **{"files": HastyFiles(), **named})
    directory.mkdir(exist_ok=True)
    writer.write(TableChanges(keys, rows))
    return directory


def rows_in(table: DimensionTable | OverlaidTable) -> list[Row]:
    return sorted((tuple(row.values()) for batch in table.scan() for row in batch.to_pylist()), key=repr)


def is_in(address: str, network: str | None) -> bool:
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(network or "")
    except ValueError:
        return False


MEANINGS: dict[IndexKey, Callable[[Any, Row], bool]] = {
    BY_NAME: lambda probe, row: row[2] == probe,
    BY_RANGE: lambda probe, row: None not in (row[3], row[4]) and row[3] <= probe <= row[4],
    BY_NETWORK: lambda probe, row: is_in(probe, row[5]),
    BY_START: lambda probe, row: row[2] is not None and probe.startswith(row[2]),
}
PROBES: dict[IndexKey, pa.Array] = {
    BY_NAME: pa.array(["", "ab", None, "b", "ab"]),
    BY_RANGE: pa.array([3, None, 0, 6], pa.int32()),
    BY_NETWORK: pa.array(["10.1.2.3", "10.9.9.9", None, "2001:db8::1", "10.1.2.4"]),
    BY_START: pa.array(["abc", "", None, "ä", "x"]),
}


def check(table: DimensionTable | OverlaidTable, kept: dict[Key, Row]) -> None:
    """The rows of the dict, found by every index as a loop over them finds them."""
    rows = [(*key, *content) for key, content in kept.items()]
    assert table.rows == len(rows)
    assert rows_in(table) == sorted(rows, key=repr)
    for key, probes in PROBES.items():
        found = table.find(key, [probes])
        order = list(zip(found.probe.tolist(), found.row.tolist(), strict=True))
        assert order == sorted(set(order))
        taken = [tuple(row.values()) for row in table.take(found.row).to_pylist()]
        assert sorted(zip(found.probe.tolist(), taken, strict=True), key=repr) == sorted(
            (
                (place, row)
                for place, probe in enumerate(probes.to_pylist())
                for row in rows
                if probe is not None and MEANINGS[key](probe, row)
            ),
            key=repr,
        )
    primary = [(number, part) for number in range(5) for part in ("", "x")]
    asked = [pa.array([number for number, _ in primary]), pa.array([part for _, part in primary])]
    found = table.find(PRIMARY, [asked[0], asked[1]])
    names = table.take(found.row, ["name"]).column(0).to_pylist()
    assert {primary[probe]: name for probe, name in zip(found.probe, names, strict=True)} == {
        key: content[0] for key, content in kept.items()
    }


class _Versions(RuleBasedStateMachine):
    """Versions of one table, each made of the one before it."""

    hashing: Hashing = KeyHash

    def __init__(self) -> None:
        super().__init__()
        self._root = Path(tempfile.mkdtemp(prefix="overlays-"))
        self._kept: dict[Key, Row] = {}
        self._made: list[tuple[Path, dict[Key, Row]]] = []

    def _next(self) -> Path:
        return self._root / str(len(self._made))

    @initialize(rows=st.dictionaries(primary_keys, contents))
    def load(self, rows: dict[Key, Row]) -> None:
        self._reload(rows)

    @rule(rows=st.dictionaries(primary_keys, contents))
    def load_again(self, rows: dict[Key, Row]) -> None:
        self._reload(rows)

    def _reload(self, rows: dict[Key, Row]) -> None:
        self._kept = dict(rows)
        built(self._next(), [(*key, *content) for key, content in rows.items()], hashing=self.hashing)
        self._made.append((self._next(), dict(self._kept)))

    @rule(made=changes, most_rows=st.sampled_from([0, 2, 5, 100]))
    def change(self, made: dict[Key, Row | None], most_rows: int) -> None:
        for key, content in made.items():
            self._kept.pop(key, None)
            if content is not None:
                self._kept[key] = content
        before = self._made[-1][0]
        changed(self._next(), before, made, hashing=self.hashing, most_rows=most_rows)
        self._made.append((self._next(), dict(self._kept)))

    @rule(data=st.data())
    def look_at_an_old_version(self, data: st.DataObject) -> None:
        directory, kept = data.draw(st.sampled_from(self._made))
        check(open_version(directory, check=True, hashing=self.hashing), kept)

    @rule()
    def remove_all_versions_but_the_last(self) -> None:
        for directory, _ in self._made[:-1]:
            shutil.rmtree(directory, ignore_errors=True)
        self._made = self._made[-1:]
        self._root = Path(tempfile.mkdtemp(dir=self._root))

    @invariant()
    def the_last_version_is_the_dict(self) -> None:
        if self._made:
            directory, kept = self._made[-1]
            check(open_version(directory, check=True, hashing=self.hashing), kept)

    def teardown(self) -> None:
        shutil.rmtree(
            next(path for path in (self._root, *self._root.parents) if path.parent == Path(tempfile.gettempdir()))
        )


class _VersionsThatCollide(_Versions):
    hashing = FewHashes


TestVersions = _Versions.TestCase
TestVersions.settings = settings(deadline=None, max_examples=scaled(15), stateful_step_count=10)
TestVersionsThatCollide = _VersionsThatCollide.TestCase
TestVersionsThatCollide.settings = settings(deadline=None, max_examples=scaled(6), stateful_step_count=8)

CONTENT = ("ab", 1, 5, "10.0.0.0/8")


def test_an_overlay_shares_the_files_of_the_table_below(tmp_path: Path) -> None:
    before = built(tmp_path / "1", [(number, "", *CONTENT) for number in range(500)])
    after = changed(tmp_path / "2", before, {(3, ""): None, (9, "new"): CONTENT})
    table = open_version(after)
    assert isinstance(table, OverlaidTable)
    for name in DimensionTable.open(before).manifest.files:
        assert (after / name).samefile(before / name)
    shutil.rmtree(before)
    assert open_version(after, check=True).rows == 500
    assert table.rows == 500


def test_an_overlay_above_its_limit_becomes_one_table_with_what_is_below(tmp_path: Path) -> None:
    before = built(tmp_path / "0", [(number, "", *CONTENT) for number in range(10)])
    made: list[bool] = []
    for number in range(4):
        # Each change hides a row and has one: two more rows in the overlay.
        before = changed(tmp_path / str(number + 1), before, {(number, ""): CONTENT}, most_rows=4)
        made.append(isinstance(open_version(before), OverlaidTable))
    assert made == [True, True, False, True]
    assert open_version(before).rows == 10


@pytest.mark.parametrize(("rows", "limit"), [(0, LEAST_MERGED), (10 * LEAST_MERGED, LEAST_MERGED), (25_000, 2_500)])
def test_the_limit_of_an_overlay_is_a_part_of_the_table_but_never_small(rows: int, limit: int, tmp_path: Path) -> None:
    builder = TableBuilder(tmp_path / "t", pa.schema([pa.field("id", pa.int64())]), [IndexKey.equal("id")])
    builder.add(pa.RecordBatch.from_arrays([pa.array(range(rows), pa.int64())], ["id"]))
    builder.finish()
    assert OverlayWriter(tmp_path / "next", tmp_path / "t", IndexKey.equal("id"), []).most_rows == limit
    assert limit <= MAX_OVERLAY_ROWS


def test_a_table_that_has_not_stored_what_it_is_found_by_takes_no_changes(tmp_path: Path) -> None:
    builder = TableBuilder(tmp_path / "t", SCHEMA, [PRIMARY], stored=["name"])
    builder.finish()
    assert not takes_changes(DimensionTable.open(tmp_path / "t"), PRIMARY)
    whole = DimensionTable.open(built(tmp_path / "whole", []))
    assert takes_changes(whole, PRIMARY)
    assert not takes_changes(whole, IndexKey.equal("id"))


def test_an_index_that_is_wanted_later_is_made_of_both_tables(tmp_path: Path) -> None:
    before = built(tmp_path / "1", [(1, "", *CONTENT), (2, "", *CONTENT)], keys=())
    made = {(2, ""): None, (3, ""): ("b", 1, 2, None)}
    check(open_version(changed(tmp_path / "2", before, made)), {(1, ""): CONTENT, (3, ""): ("b", 1, 2, None)})
    later = IndexKey.equal("high")
    table = open_version(tmp_path / "2")
    with pytest.raises(DimensionError):
        table.find(later, [pa.array([2])])
    table.add_index(later)
    assert table.find(later, [pa.array([2])]).row.tolist() == [2]
    assert open_version(tmp_path / "2").find(later, [pa.array([5])]).probe.tolist() == [0]
    # The version before has links to the same files and knows nothing of it.
    assert DimensionTable.open(before, check=True).indexes == (PRIMARY,)


def test_a_kill_in_the_middle_leaves_the_version_before_as_it_was(tmp_path: Path) -> None:
    before = built(tmp_path / "1", [(number, "", *CONTENT) for number in range(20)])
    kept = rows_in(DimensionTable.open(before))
    made: dict[Key, Row | None] = {(3, ""): None, (40, ""): CONTENT}
    deaths = 0
    for life in range(1, 400, 7):
        target = tmp_path / f"try{life}"
        target.mkdir()
        try:
            changed(target, before, made, files=MortalFiles(life, undone=True))
        except Died:
            deaths += 1
        else:
            break
        assert rows_in(DimensionTable.open(before, check=True)) == kept
        shutil.rmtree(target)
    assert deaths > 3
    assert open_version(changed(tmp_path / "2", before, made), check=True).rows == 20


def test_hidden_rows_are_left_out_where_all_rows_are_asked(tmp_path: Path) -> None:
    before = built(tmp_path / "1", [(number, "", *CONTENT) for number in range(4)])
    table = open_version(changed(tmp_path / "2", before, {(0, ""): None, (1, ""): CONTENT, (7, ""): CONTENT}))
    numbers = table.row_numbers()
    assert len(numbers) == table.rows == 4
    assert sorted(table.take(numbers, ["id"]).column(0).to_pylist()) == [1, 2, 3, 7]
    assert table.take(numbers, []).num_rows == 4
    assert np.array_equal(numbers, np.unique(numbers))
