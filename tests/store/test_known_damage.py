"""What is known of damage in a log outlives a start, and goes with what the log does not have any more."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from store_samples import SMALL, bodies, pending

from millstream.model.errors import MillstreamError
from millstream.store.damage.known_damage import DAMAGE, MAX_PLACES, KnownDamage, discard_derived
from millstream.store.message_store import MessageStore


def test_places_are_kept_over_a_start_and_merged_where_they_touch(tmp_path: Path) -> None:
    damage = KnownDamage(tmp_path)
    assert damage.note(100, 200)
    assert not damage.note(120, 130)
    assert damage.note(200, 260)
    assert damage.note(500, 600)
    damage.position, damage.needs_rebuild = 4096, True
    damage.save()
    again = KnownDamage(tmp_path)
    assert again.places == [(100, 260), (500, 600)]
    assert (again.position, again.needs_rebuild, again.size_bytes) == (4096, True, 260)
    assert [again.holds(at) for at in (99, 100, 259, 260)] == [False, True, True, False]


def test_what_is_mended_cut_off_or_let_go_is_damaged_no_more(tmp_path: Path) -> None:
    damage = KnownDamage(tmp_path)
    damage.note(100, 200)
    damage.note(300, 400)
    damage.drop(150, 160)
    assert damage.places == [(100, 150), (160, 200), (300, 400)]
    damage.keep_within(170, 350)
    assert damage.places == [(170, 200), (300, 350)]
    damage.keep_within(170, 200)
    assert damage.places == [(170, 200)]


def test_no_more_places_are_kept_than_a_document_holds(tmp_path: Path) -> None:
    damage = KnownDamage(tmp_path)
    for number in range(MAX_PLACES):
        assert not damage.is_full
        damage.note(number * 10, number * 10 + 5)
    assert damage.is_full
    damage.note(MAX_PLACES * 10, MAX_PLACES * 10 + 5)
    assert len(damage.places) == MAX_PLACES


def test_a_document_that_cannot_be_read_makes_the_log_be_looked_at_anew(tmp_path: Path) -> None:
    damage = KnownDamage(tmp_path)
    damage.note(100, 200)
    damage.save()
    for path in tmp_path.glob(f"{DAMAGE}*"):
        path.write_bytes(b"rubbish")
    assert KnownDamage(tmp_path).places == []


def test_a_store_without_what_is_derived_makes_it_again_from_its_log(scratch: Path) -> None:
    with closing(MessageStore.open(scratch / "store", SMALL)) as store:
        for number in range(20):
            store.put([pending(b"%d" % number * 30, queue_id=number % 2, key=f"k{number}")])
        with pytest.raises(MillstreamError):
            discard_derived(scratch / "store")
        before = [bodies(store, queue_id=queue) for queue in (0, 1)]
    (scratch / "config.json").write_text("derived as well")
    discard_derived(scratch / "store", ("../config.json",))
    assert not (scratch / "config.json").exists()
    assert not (scratch / "store" / "checkpoint").exists()
    with closing(MessageStore.open(scratch / "store", SMALL)) as store:
        assert [bodies(store, queue_id=queue) for queue in (0, 1)] == before
        assert len(store.find_by_key("orders", "k3")) == 1
