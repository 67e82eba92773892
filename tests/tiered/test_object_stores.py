"""One contract for all object stores: of a directory, in memory, and of buckets where their package is installed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash.faulty_objects import FaultyObjects, ObjectFault

from millstream.tiered.bucket_objects import open_bucket
from millstream.tiered.directory_objects import DirectoryObjects
from millstream.tiered.objects import (
    MAX_DELETED_KEYS,
    ObjectExists,
    ObjectNotFound,
    ObjectStore,
    ObjectStoreAway,
    ObjectStoreDenied,
)
from millstream.tiered.places import ObjectPlace
from s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, find_versitygw, run_versitygw

KINDS = ("directory", "memory", "bucket", pytest.param("s3", marks=pytest.mark.process))


@pytest.fixture(params=KINDS)
def objects(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    if request.param == "directory":
        yield DirectoryObjects(tmp_path / "objects")
    elif request.param == "memory":
        yield FaultyObjects()
    elif request.param == "s3":
        pytest.importorskip("obstore", reason="the package obstore (extra tiered) is not installed")
        program = find_versitygw()
        if program is None:
            pytest.skip("versitygw is not installed: go install github.com/versity/versitygw/cmd/versitygw@latest")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        with run_versitygw(program, tmp_path / "s3") as endpoint:
            yield ObjectPlace(f"s3://{BUCKET}/prefix", endpoint, "us-east-1").open()
    else:
        pytest.importorskip("obstore", reason="the package obstore (extra tiered) is not installed")
        yield open_bucket("memory:///")


def test_what_was_put_is_read_whole_and_in_ranges(objects: ObjectStore) -> None:
    objects.put("a/b", b"0123456789")
    assert objects.get("a/b") == b"0123456789"
    assert objects.get("a/b", 2, 5) == b"234"
    assert objects.get("a/b", 7) == b"789"
    assert objects.get("a/b", 4, 4) == b""
    assert objects.get_many("a/b", [(0, 1), (8, 10), (3, 6)]) == [b"0", b"89", b"345"]
    assert objects.get_many("a/b", []) == []


def test_an_empty_object_is_an_object(objects: ObjectStore) -> None:
    objects.put("empty", b"")
    assert objects.get("empty") == b""
    assert objects.head("empty").size_bytes == 0


def test_a_create_only_put_leaves_what_is_there(objects: ObjectStore) -> None:
    objects.put("key", b"first", create_only=True)
    with pytest.raises(ObjectExists, match="key"):
        objects.put("key", b"second", create_only=True)
    assert objects.get("key") == b"first"
    objects.put("key", b"third")
    assert objects.get("key") == b"third"


def test_of_many_create_only_puts_of_one_key_one_wins(objects: ObjectStore) -> None:
    won: list[int] = []

    def put(number: int) -> None:
        try:
            objects.put("key", str(number).encode() * 1000, create_only=True)
        except ObjectExists:
            return
        won.append(number)

    threads = [threading.Thread(target=put, args=[number]) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [winner] = won
    assert objects.get("key") == str(winner).encode() * 1000


def test_what_is_not_there_is_said_to_be_missing(objects: ObjectStore) -> None:
    for call in (objects.get, objects.head):
        with pytest.raises(ObjectNotFound, match="no/such"):
            call("no/such")
    with pytest.raises(ObjectNotFound, match="no/such"):
        objects.get_many("no/such", [(0, 1)])


def test_a_deleted_object_is_gone_and_a_second_delete_is_no_error(objects: ObjectStore) -> None:
    for key in ("a", "b", "c"):
        objects.put(key, b"x")
    objects.delete(["a", "c", "never"])
    objects.delete(["a"])
    objects.delete([])
    assert [info.key for info in objects.list("")] == ["b"]


def test_a_list_is_in_order_below_its_prefix_and_behind_a_key(objects: ObjectStore) -> None:
    for key in ("p/a/2", "p/a/1", "p/b", "p/ab", "q"):
        objects.put(key, key.encode())
    assert [info.key for info in objects.list("p/")] == ["p/a/1", "p/a/2", "p/ab", "p/b"]
    assert [info.key for info in objects.list("p/a")] == ["p/a/1", "p/a/2", "p/ab"]
    assert [info.key for info in objects.list("p/", after="p/a/1")] == ["p/a/2", "p/ab", "p/b"]
    assert [(info.key, info.size_bytes) for info in objects.list("q")] == [("q", 1)]
    assert list(objects.list("nothing/")) == []


def test_objects_have_the_time_of_their_put(objects: ObjectStore) -> None:
    objects.put("first", b"1")
    objects.put("second", b"2")
    assert 0 < objects.head("first").modified_ms <= objects.head("second").modified_ms


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "a/../b", "a b", "a\n", "x" * 1025, "ä"])
def test_a_key_that_not_every_store_takes_is_refused(objects: ObjectStore, key: str) -> None:
    with pytest.raises(ValueError, match="no key"):
        objects.put(key, b"x")


def test_more_keys_than_a_store_takes_at_once_are_refused(objects: ObjectStore) -> None:
    with pytest.raises(ValueError, match="1001 keys"):
        objects.delete(["k"] * (MAX_DELETED_KEYS + 1))


def test_a_directory_leaves_nothing_of_a_put_that_failed(tmp_path: Path) -> None:
    objects = DirectoryObjects(tmp_path)
    objects.put("a/b", b"x", create_only=True)
    with pytest.raises(ObjectExists):
        objects.put("a/b", b"y", create_only=True)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


def test_a_directory_that_is_a_file_is_denied(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ObjectStoreDenied, match="file"):
        DirectoryObjects(tmp_path / "file" / "below")


def test_a_planned_fault_comes_before_or_after_the_call_took_effect() -> None:
    objects = FaultyObjects()
    objects.plan.extend([ObjectFault.BEFORE, ObjectFault.AFTER])
    with pytest.raises(ObjectStoreAway):
        objects.put("before", b"x")
    with pytest.raises(ObjectStoreAway):
        objects.put("after", b"x")
    assert [info.key for info in objects.list("")] == ["after"]
