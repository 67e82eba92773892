"""One row of those that fall on a key: what looking at all rows that are there says, after every turn."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playing import Kinded, Player, inserted, table_of

from millstream.streams.errors import JobError
from millstream.streams.operators.normalize import ConflictOperator
from millstream.streams.operators.operator import DELETE, INSERT, Row
from millstream.streams.plan.nodes import OnConflict

KEYS = st.one_of(st.none(), st.integers(0, 1))
TURNS = st.lists(st.lists(st.tuples(KEYS, st.integers(0, 3), st.booleans()), max_size=8), max_size=6)


def player_of(on_conflict: OnConflict, ttl_ms: int = 0) -> Player:
    return Player(partial(ConflictOperator, (0,), ("k",), on_conflict), ttl_ms=ttl_ms)


@pytest.mark.parametrize(("on_conflict", "place"), [(OnConflict.LAST, -1), (OnConflict.FIRST, 0)])
@given(turns=TURNS)
def test_each_key_has_the_last_or_first_of_the_rows_that_are_there(
    on_conflict: OnConflict, place: int, turns: list[list[tuple[int | None, int, bool]]]
) -> None:
    player = player_of(on_conflict)
    there: dict[int | None, list[Row]] = {}
    for turn in turns:
        changes: list[Kinded] = []
        for key, value, comes in turn:
            row = (key, [value])
            rows = there.setdefault(key, [])
            if comes or row not in rows:
                rows.append(row)
                changes.append((INSERT, row))
            else:
                del rows[len(rows) - 1 - rows[::-1].index(row)]
                changes.append((DELETE, row))
        player.turn(changes)
        told = table_of([(kind, (key, value[0])) for kind, (key, value) in player.played.said])
        chosen = [rows[place] for rows in there.values() if rows]
        assert sorted(told, key=repr) == sorted(((key, value[0]) for key, value in chosen), key=repr)
        assert set(told.values()) <= {1}


def test_what_comes_and_goes_within_a_turn_is_not_told() -> None:
    player = player_of(OnConflict.LAST)
    assert player.turn([(INSERT, (1, "a")), (DELETE, (1, "a"))]) == []
    assert player.turn([(INSERT, (1, "a")), (INSERT, (1, "b"))]) == [(INSERT, (1, "b"))]


def test_two_rows_of_a_key_end_a_job_that_asks_for_it_but_not_while_they_change_places() -> None:
    player = player_of(OnConflict.NONE)
    assert player.turn(inserted((1, "a"))) == [(INSERT, (1, "a"))]
    assert len(player.turn([(INSERT, (1, "b")), (DELETE, (1, "a"))])) == 2
    with pytest.raises(JobError, match=r"2 rows .* k = 1, .*ON CONFLICT DO ERROR") as raised:
        player.turn(inserted((1, "c")))
    assert raised.value.name == "JOB_FAILED"


def test_rows_that_nobody_touches_are_forgotten_and_may_still_be_taken_back() -> None:
    player = player_of(OnConflict.LAST, ttl_ms=10)
    assert player.turn(inserted((1, "a"))) == [(INSERT, (1, "a"))]
    assert player.turn([], now_us=20_000) == []
    assert player.turn([(DELETE, (1, "a"))], now_us=20_001) == []
