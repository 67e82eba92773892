"""`millstream dim`, as scripts use it: over the files alone, without a server and without Spark."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Ran

from millstream.cli.main import main
from millstream.streams.dimension.hit_counts import COUNTS, HitCounts
from millstream.streams.dimension.versions import Loaded, ReloadRequest, TableNote, VersionStore
from millstream.streams.errors import JobError

pytestmark = pytest.mark.process


KEY = '{"kind": "equal", "columns": ["id"], "end_included": true}'
NOTE = TableNote("assets", "jdbc", "jdbc:sqlite:/a.db assets", ("id", "name"), ("=(kind, 1)",), "every 30 s", (KEY,))

Dim = Callable[..., Ran]


@pytest.fixture
def dim(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Dim:
    """Runs one command in this process over the directory `dimensions`."""
    monkeypatch.setenv("MILLSTREAM_DIMENSIONS", str(tmp_path / "dimensions"))

    def command(*arguments: str) -> Ran:
        code = main(["dim", *arguments])
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return command


def kept(tmp_path: Path, name: str = "assets-1a2b", note: TableNote = NOTE) -> VersionStore:
    store = VersionStore(
        tmp_path / "dimensions" / name, clock_ms=iter((1000, 3500, *range(10**6, 10**6 + 99))).__next__
    )
    store.describe(note)
    store.load(lambda _directory: Loaded(200, 7000))
    return store


def test_no_tables_are_told_as_such(dim: Dim) -> None:
    assert dim("list").code == 0
    assert "has no dimension tables" in dim("list").err


def test_tables_are_listed_with_size_version_and_hit_rate(dim: Dim, tmp_path: Path) -> None:
    store = kept(tmp_path)
    HitCounts(store.directory / COUNTS).add(8, 6)
    (row,) = json.loads(dim("list", "-o", "json").out)
    assert row == {
        "table": "assets",
        "id": "assets-1a2b",
        "rows": 200,
        "bytes": 7000,
        "bytes_a_row": 35.0,
        "version": 1,
        "loaded": "1970-01-01T00:00:03Z",
        "hit_rate": 0.75,
        "trouble": None,
    }


def test_a_table_is_described_by_its_name_or_its_id(dim: Dim, tmp_path: Path) -> None:
    store = kept(tmp_path)
    with pytest.raises(JobError):
        store.load(_fails)
    for name in ("assets", "assets-1a2b"):
        said = json.loads(dim("describe", name, "-o", "json").out)
        assert said["indexes"] == ["equal (id)"]
        assert said["filters"] == ["=(kind, 1)"]
        assert said["versions"] == [1]
        assert "does not answer" in said["trouble"]
    shown = dim("describe", "assets", "-o", "table").out
    assert "jdbc:sqlite:/a.db assets" in shown
    assert "* version 1: 1970-01-01T00:00:03Z, 200 rows, 7,000 bytes, loaded in 2.5 s" in shown


def _fails(_directory: Path) -> Loaded:
    raise JobError("JOB_FAILED", "The database does not answer.")


def test_a_name_that_nothing_or_several_tables_have_is_refused(dim: Dim, tmp_path: Path) -> None:
    kept(tmp_path)
    refused = dim("describe", "asset")
    assert refused.code == 1
    assert "Did you mean assets?" in refused.err
    kept(tmp_path, "assets-3c4d")
    assert "assets-1a2b, assets-3c4d" in dim("describe", "assets").err


def test_a_reload_is_wished_for_and_waited_for(dim: Dim, tmp_path: Path) -> None:
    store = kept(tmp_path)
    assert "a running job loads it now" in dim("reload", "assets", "-o", "table").out
    assert ReloadRequest(store.directory).time_ms() is not None
    assert dim("reload", "assets", "--wait", "0.2").code == 4
    load = threading.Timer(0.2, store.load, [lambda _directory: Loaded(300, 1)])
    load.start()
    ran = dim("reload", "assets", "--wait", "60", "-o", "json")
    load.join()
    assert (ran.code, json.loads(ran.out)) == (0, {"version": 2, "rows": 300})


def test_a_table_is_dropped_unless_it_is_read(dim: Dim, tmp_path: Path) -> None:
    store = kept(tmp_path)
    held = store.lease(1)
    assert held is not None
    refused = dim("drop", "assets")
    assert refused.code == 1
    assert "DIMENSION_IN_USE" in refused.err or "read or loaded" in refused.err
    held.release()
    assert dim("drop", "assets").code == 0
    assert not store.directory.exists()
