"""The store of rules: versions that never change, damage told with the file, two writers kept apart."""

from __future__ import annotations

import errno
import hashlib
import math
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from crash.file_twins import FailingFiles, HastyFiles
from rule_samples import rule_named, with_rules

from millstream.store.directory_lock import DirectoryLock
from millstream.store.files import FileLayer
from millstream.streams.errors import RuleError
from millstream.streams.rules.conditions import Op, Predicate, Truth
from millstream.streams.rules.rule import Rule, RuleSet
from millstream.streams.rules.store import MIN_KEPT_VERSIONS, RuleSetHead, RuleStore


@pytest.fixture
def store(tmp_path: Path) -> RuleStore:
    return RuleStore(tmp_path / "rules", files=HastyFiles())


def test_a_store_that_nothing_was_published_to_is_not_found_and_says_how_to_fill_it(store: RuleStore) -> None:
    assert not store.exists()
    with pytest.raises(RuleError, match="millstream rules import") as refused:
        store.current()
    assert refused.value.name == "RULE_STORE_NOT_FOUND"


def test_what_is_published_is_read_again_under_the_next_number_and_older_versions_stay(store: RuleStore) -> None:
    first = store.publish(with_rules(rule_named("a")), why="the first")
    second = store.publish(with_rules(rule_named("a"), rule_named("b", enabled=False)))
    assert (first.version, second.version, store.current()) == (1, 2, 2)
    assert store.load(1) == first
    assert store.latest() == second
    heads = [(one.version, one.rules, one.enabled, one.why) for one in store.versions() if isinstance(one, RuleSetHead)]
    assert heads == [(1, 1, 1, "the first"), (2, 2, 1, "")]


def test_a_set_that_stays_as_it_was_publishes_nothing(store: RuleStore) -> None:
    store.publish(with_rules(rule_named("a")))
    assert store.publish(lambda before: before).version == 1
    assert store.publish(with_rules(rule_named("a"))).version == 1
    assert [path.name for path in (store.directory / "versions").iterdir()] == ["1.rules"]


def test_a_change_of_paths_alone_is_a_change(store: RuleStore) -> None:
    store.publish(with_rules(rule_named("a")))
    changed = store.publish(lambda before: RuleSet(before.version, before.rules, {"Image": (("process", "image"),)}))
    assert store.load(changed.version).paths == {"Image": (("process", "image"),)}


def test_a_change_that_raises_publishes_nothing_and_frees_the_store(store: RuleStore) -> None:
    def fail(_before: RuleSet) -> RuleSet:
        raise ValueError("no")

    store.publish(with_rules(rule_named("a")))
    with pytest.raises(ValueError, match="no"):
        store.publish(fail)
    assert store.publish(with_rules(rule_named("b"))).version == 2


def test_two_rules_of_one_id_are_refused(store: RuleStore) -> None:
    with pytest.raises(RuleError, match="'a'") as refused:
        store.publish(with_rules(rule_named("a"), rule_named("a", "other")))
    assert refused.value.name == "RULE_REFUSED"
    assert not store.exists()


def test_rules_that_could_not_be_read_again_are_refused_before_anything_is_written(store: RuleStore) -> None:
    bad = Rule("bad", "half \ud800", Predicate("x", Op.LESS, (math.inf,)))
    for one in (bad, msgspec.structs.replace(bad, condition=Truth(True)), msgspec.structs.replace(bad, title="good")):
        with pytest.raises(RuleError) as refused:
            store.publish(with_rules(one))
        assert refused.value.name == "RULE_REFUSED"
    assert not store.exists()


def test_a_version_that_is_not_there_is_told_with_those_that_are(store: RuleStore) -> None:
    store.publish(with_rules(rule_named("a")))
    store.publish(with_rules(rule_named("b")))
    with pytest.raises(RuleError, match="no version 7; it has 1 to 2") as refused:
        store.load(7)
    assert refused.value.name == "RULE_VERSION_NOT_FOUND"


def test_a_rollback_makes_an_older_version_the_next_one(store: RuleStore) -> None:
    first = store.publish(with_rules(rule_named("a")))
    store.publish(with_rules(rule_named("b")))
    back = store.rollback(1)
    assert (back.version, back.rules) == (3, first.rules)
    assert store.latest() == back
    assert store.rollback(3).version == 3


@pytest.mark.parametrize("place", [0, 5, 12, 40, 80, 150, 200, -40, -1])
def test_each_damaged_byte_of_a_version_is_found_and_a_rollback_mends_the_store(store: RuleStore, place: int) -> None:
    first = store.publish(with_rules(rule_named("a")))
    store.publish(with_rules(rule_named("b")))
    path = store.directory / "versions" / "2.rules"
    content = bytearray(path.read_bytes())
    content[place] ^= 0x41
    path.write_bytes(content)
    with pytest.raises(RuleError, match=r"2\.rules.*millstream rules rollback") as refused:
        store.latest()
    assert refused.value.name == "RULE_STORE_DAMAGED"
    assert [isinstance(one, RuleError) for one in store.versions()] == [False, True]
    assert store.rollback(1).version == 3
    assert store.latest().rules == first.rules


@pytest.mark.parametrize("content", [b"", b"2", b"MSCURRENT 1\n2 abc\n", b"MSCURRENT 1\n2", b"\x00" * 90])
def test_a_damaged_name_of_the_version_that_counts_is_told_and_mended_by_a_rollback(
    store: RuleStore, content: bytes
) -> None:
    store.publish(with_rules(rule_named("a")))
    store.publish(with_rules(rule_named("b")))
    (store.directory / "current").write_bytes(content)
    with pytest.raises(RuleError, match="current") as refused:
        store.current()
    assert refused.value.name == "RULE_STORE_DAMAGED"
    with pytest.raises(RuleError):
        store.publish(with_rules(rule_named("c")))
    assert store.rollback(2).version == 3
    assert store.current() == 3


def test_a_version_cut_short_is_damaged_wherever_it_is_cut(store: RuleStore) -> None:
    store.publish(with_rules(rule_named("a")))
    path = store.directory / "versions" / "1.rules"
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(RuleError):
            store.load(1)


def test_old_versions_are_forgotten_but_the_newest_hundred_and_those_in_use(store: RuleStore) -> None:
    for number in range(MIN_KEPT_VERSIONS + 5):
        store.publish(with_rules(rule_named(f"r{number}")))
    assert store.forget(before=4, in_use=[2]) == [1, 3]
    assert store.forget(before=10_000) == [2, 4, 5]
    assert store.load(6).rules == (rule_named("r5"),)
    assert len(store.versions()) == MIN_KEPT_VERSIONS


def test_the_version_that_counts_is_never_forgotten(store: RuleStore) -> None:
    for number in range(MIN_KEPT_VERSIONS + 2):
        store.publish(with_rules(rule_named(f"r{number}")))
    old = (store.directory / "versions" / "1.rules").read_bytes()
    name = b"1 " + hashlib.sha256(b"1").hexdigest().encode()
    (store.directory / "current").write_bytes(b"MSCURRENT 1\n" + name + b"\n")
    assert 1 not in store.forget(before=10_000)
    assert (store.directory / "versions" / "1.rules").read_bytes() == old


def test_a_writer_waits_for_another_one_and_then_names_it(tmp_path: Path) -> None:
    directory = tmp_path / "rules"
    held = DirectoryLock(directory, FileLayer())
    try:
        with pytest.raises(RuleError, match=f"process {os.getpid()}") as refused:
            RuleStore(directory, lock_wait_s=0.1).publish(with_rules(rule_named("a")))
        assert refused.value.name == "RULE_STORE_IN_USE"
    finally:
        held.release()
    assert RuleStore(directory).publish(with_rules(rule_named("a"))).version == 1


@pytest.mark.process
def test_writers_of_several_processes_lose_nothing(tmp_path: Path) -> None:
    programme = (
        "import sys; from pathlib import Path; from rule_samples import rule_named;"
        "from millstream.streams.rules.rule import RuleSet; from millstream.streams.rules.store import RuleStore;"
        "store = RuleStore(Path(sys.argv[1]));"
        "[store.publish(lambda b: RuleSet(b.version, (*b.rules, rule_named(f'{sys.argv[2]}-{n}')))) for n in range(10)]"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), str(Path(__file__).parent)])}
    processes = [
        subprocess.Popen([sys.executable, "-c", programme, str(tmp_path / "rules"), word], env=environment)
        for word in "ab"
    ]
    assert [process.wait(60) for process in processes] == [0, 0]
    final = RuleStore(tmp_path / "rules").latest()
    assert final.version == 20
    assert sorted(rule.id for rule in final.rules) == sorted(f"{word}-{n}" for word in "ab" for n in range(10))


def test_a_store_that_cannot_be_written_says_so_and_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RuleError) as refused:
        RuleStore(tmp_path / "file").publish(with_rules(rule_named("a")))
    assert refused.value.name == "RULE_STORE_NOT_WRITABLE"


def test_a_full_disk_leaves_the_rules_as_they_were_and_room_is_all_it_takes(tmp_path: Path) -> None:
    files = FailingFiles()
    store = RuleStore(tmp_path / "rules", files=files)
    first = store.publish(with_rules(rule_named("a")))
    files.errors["sync"] = errno.ENOSPC
    with pytest.raises(RuleError, match="No space left") as refused:
        store.publish(with_rules(rule_named("b")))
    assert refused.value.name == "RULE_STORE_NOT_WRITABLE"
    assert store.latest() == first
    files.errors.clear()
    assert store.publish(with_rules(rule_named("b"))).version == 2
    assert sorted(path.name for path in (tmp_path / "rules" / "versions").iterdir()) == ["1.rules", "2.rules"]


def test_what_a_writer_left_unfinished_goes_with_the_next_change(store: RuleStore) -> None:
    store.publish(with_rules(rule_named("a")))
    left = store.directory / "versions" / "2.rules.tmp"
    left.write_bytes(b"half")
    store.publish(with_rules(rule_named("b")))
    assert not left.exists()
    store.publish(with_rules(rule_named("c")))
    assert store.current() == 3
