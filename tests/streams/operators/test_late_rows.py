"""The table of docs/late-rows.md: what each operator does with a row that comes behind the watermark."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
from playing import Player, inserted, table_of
from test_match_operator import ABOVE_0, matcher

from millstream.streams.operators.aggregates.catalogue import AggregateSpec
from millstream.streams.operators.grouping import Grouper
from millstream.streams.operators.joins.interval_joining import IntervalJoiner
from millstream.streams.operators.joins.regular_joining import JoinShape
from millstream.streams.operators.joins.temporal_joining import TemporalJoiner
from millstream.streams.operators.joins.window_joining import WindowJoiner
from millstream.streams.operators.keys import OrderColumn
from millstream.streams.operators.operator import DELETE, INSERT
from millstream.streams.operators.over.retracting_over import RetractingOver
from millstream.streams.operators.over.streaming_over import OverFrame, StreamingOver
from millstream.streams.operators.ranking import FirstRows, Ranker
from millstream.streams.operators.sorting import Sorter
from millstream.streams.operators.windows.sessions import SessionRows, SessionWindower
from millstream.streams.operators.windows.window_times import Hopping
from millstream.streams.operators.windows.windowing import EmitStrategy, Windower
from millstream.streams.plan.joins import JoinKind
from millstream.streams.plan.patterns import Variable
from millstream.streams.plan.types import BIGINT

S = 1_000_000
COUNT = (AggregateSpec("COUNT", (), None, BIGINT),)
LAG = (AggregateSpec("LAG", (2,), BIGINT, BIGINT),)
BY_TIME = (OrderColumn(1),)
PAGE = Path(__file__).parents[3] / "docs" / "late-rows.md"
CASES: dict[str, list[Callable[[], None]]] = {}


def row(first_words: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Say which row of the table a test is about."""

    def note(test: Callable[[], None]) -> Callable[[], None]:
        CASES.setdefault(first_words, []).append(test)
        return test

    return note


def test_every_row_of_the_table_is_tested() -> None:
    cells = re.findall(r"^\| (.+?) \|", PAGE.read_text(), re.MULTILINE)[1:]
    assert len(cells) == len(CASES)
    for cell in cells:
        assert sum(cell.startswith(words) for words in CASES) == 1, cell


def windows(speaking: EmitStrategy) -> Player:
    return Player(partial(Windower, 1, COUNT, 1, Hopping(10 * S, 5 * S), speaking=speaking))


@row("GROUP BY a window of TUMBLE")
def test_a_row_counts_in_those_of_its_windows_that_are_not_over() -> None:
    player = windows(EmitStrategy())
    player.turn(watermark_us=10 * S - 1000)
    player.turn(inserted(("a", 4 * S), ("a", 7 * S)))
    assert player.played.late == [(0, ("a", 4 * S))]
    assert player.end() == inserted(("a", 1, 5 * S, 15 * S, 15 * S - 1000))


@row("... with `EMIT")
def test_a_row_is_late_when_the_lateness_is_over() -> None:
    player = windows(EmitStrategy(late_us=0, lateness_us=5 * S))
    player.turn(watermark_us=14 * S)
    assert player.turn(inserted(("a", 4 * S)))
    player.turn(watermark_us=15 * S - 1000)
    player.turn(inserted(("a", 4 * S)))
    assert player.played.late == [(0, ("a", 4 * S))]


@row("GROUP BY a window of SESSION")
def test_a_row_behind_the_watermark_joins_an_open_session() -> None:
    player = Player(partial(SessionWindower, 1, COUNT, 1, 10 * S))
    player.turn(inserted(("a", 30 * S)), watermark_us=35 * S)
    player.turn(inserted(("a", 22 * S), ("b", 22 * S)))
    assert player.played.late == [(0, ("b", 22 * S))]
    assert player.end() == inserted(("a", 2, 22 * S, 40 * S, 40 * S - 1000))


@row("GROUP BY a window of SESSION")
def test_a_row_joins_a_session_that_one_before_it_in_the_micro_batch_has_brought_near() -> None:
    player = Player(partial(SessionWindower, 1, COUNT, 1, 10 * S))
    player.turn(inserted(("a", 40 * S)), watermark_us=45 * S)
    # The second row is near the first one, which is near the open session; the last one came before what it is near.
    player.turn(inserted(("a", 32 * S), ("a", 24 * S), ("b", 24 * S), ("b", 32 * S)))
    assert player.played.late == [(0, ("b", 24 * S)), (0, ("b", 32 * S))]
    assert player.end() == inserted(("a", 3, 24 * S, 50 * S, 50 * S - 1000))


@row("GROUP BY a window of SESSION")
def test_rows_of_sessions_are_late_as_sessions_are() -> None:
    player = Player(partial(SessionRows, 1, 1, 10 * S))
    player.turn(inserted(("a", 30 * S)), watermark_us=35 * S)
    player.turn(inserted(("a", 22 * S), ("b", 22 * S)))
    assert player.played.late == [(0, ("b", 22 * S))]
    assert len(player.end()) == 2


@row("Top-N and deduplication within a window")
def test_places_within_a_window_that_is_over_take_no_row() -> None:
    player = Player(partial(Ranker, (0,), (OrderColumn(1),), "ROW_NUMBER", 1, 1, ranked=False, window_end=0))
    player.turn(watermark_us=10 * S - 1001)
    player.turn(inserted((10 * S, 1)), watermark_us=10 * S - 1000)
    player.turn(inserted((10 * S, 0)))
    assert player.played.said == inserted((10 * S, 1))
    assert player.played.late == [(0, (10 * S, 0))]


@row("window join")
def test_a_window_join_takes_no_row_of_a_window_that_is_over() -> None:
    player = Player(lambda: WindowJoiner(JoinShape(JoinKind.LEFT, 1, (2, 2)), (1, 1)))
    player.turn([], [], watermark_us=10 * S - 1000)
    player.turn(inserted((1, "x", 10 * S)), inserted((1, "y", 10 * S)))
    assert player.played.late == [(0, ("x", 10 * S)), (1, ("y", 10 * S))]
    assert player.end() == []


def over(frame: OverFrame, specs: tuple[AggregateSpec, ...] = COUNT) -> Player:
    return Player(partial(StreamingOver, 3, (0,), BY_TIME, specs, frame, time=1))


@row("OVER from the beginning")
def test_an_over_from_the_beginning_takes_no_row_behind_the_watermark() -> None:
    player = over(OverFrame())
    player.turn(inserted(("a", 10 * S, 1)), watermark_us=20 * S)
    player.turn(inserted(("a", 20 * S, 2), ("b", 20 * S, 3), ("a", 20 * S + 1, 4)))
    assert player.played.late == [(0, ("a", 20 * S, 2)), (0, ("b", 20 * S, 3))]
    assert player.end() == inserted(("a", 20 * S + 1, 4, 2))


@row("OVER from the beginning")
def test_of_equal_times_lag_is_what_came_before() -> None:
    player = over(OverFrame(), LAG)
    player.turn(inserted(("a", 10 * S, 1), ("a", 10 * S, 2), ("a", 10 * S, 3)))
    assert [one[-1] for _, one in player.end()] == [None, 1, 2]


@row("OVER `ROWS` or `RANGE")
def test_a_frame_that_moves_takes_rows_behind_the_watermark_that_are_later_than_its_last() -> None:
    for frame in (OverFrame("rows", 5), OverFrame("range", 15 * S)):
        player = over(frame)
        player.turn(inserted(("a", 10 * S, 1)), watermark_us=20 * S)
        said = player.turn(inserted(("a", 15 * S, 2), ("a", 10 * S, 3), ("b", 5 * S, 4), ("a", 12 * S, 5)))
        assert sorted(said) == inserted(("a", 12 * S, 5, 2), ("a", 15 * S, 2, 3), ("b", 5 * S, 4, 1))
        assert player.played.late == [(0, ("a", 10 * S, 3))]
        player.turn(inserted(("a", 14 * S, 6)))
        assert player.played.late[1:] == [(0, ("a", 14 * S, 6))]
        assert player.turn(inserted(("a", 16 * S, 7))) == inserted(("a", 16 * S, 7, 4))


@row("OVER `ROWS` or `RANGE")
def test_many_rows_in_columns_are_late_as_single_ones_are() -> None:
    schema = pa.schema([("key", pa.string()), ("ts", pa.timestamp("us")), ("number", pa.int64())])
    for frame in (OverFrame("rows", 5), OverFrame("range", 15 * S)):
        players = [
            Player(partial(StreamingOver, 3, (0,), BY_TIME, COUNT, frame, time=1), schema=schema, by_column=places)
            for places in ((), range(9))
        ]
        for player in players:
            first = [(key, (10 + number) * S, number) for number in range(40) for key in "ab"]
            player.turn(inserted(*first), watermark_us=60 * S)
            mixed = [(key, (30 + number) * S, -number) for number in range(40) for key in "abc"]
            player.turn(inserted(*mixed), watermark_us=65 * S)
            player.end()
        assert table_of(players[0].played.said) == table_of(players[1].played.said)
        assert sorted(players[0].played.late) == sorted(players[1].played.late)
        if frame.unit == "rows":
            assert len(players[0].played.late) == 2 * 20


@row("OVER `ROWS` or `RANGE")
def test_a_range_takes_any_row_again_when_the_watermark_has_left_it() -> None:
    player = over(OverFrame("range", 15 * S))
    player.turn(inserted(("a", 10 * S, 1)), watermark_us=25 * S)
    assert player.turn(inserted(("a", 9 * S, 2))) == inserted(("a", 9 * S, 2, 1))
    assert player.played.late == []


@row("OVER by processing time")
def test_an_over_without_a_watermark_has_no_late_rows() -> None:
    by_arrival = Player(partial(StreamingOver, 3, (0,), (), COUNT, OverFrame(), time=None))
    changing = Player(partial(RetractingOver, 3, (0,), BY_TIME, COUNT, OverFrame(), time=1))
    for player in (by_arrival, changing):
        player.turn(inserted(("a", 10 * S, 1)), watermark_us=90 * S)
        player.turn(inserted(("a", 5 * S, 2)))
        player.end()
        assert {one[:3] for one in table_of(player.played.said)} == {("a", 10 * S, 1), ("a", 5 * S, 2)}
        assert player.played.late == []


@row("ORDER BY event time")
def test_a_sort_takes_rows_behind_the_watermark_that_are_later_than_its_last() -> None:
    player = Player(partial(Sorter, (OrderColumn(0), OrderColumn(1)), time=0))
    player.turn(inserted((10 * S, 1)), watermark_us=20 * S)
    assert player.turn(inserted((15 * S, 2), (10 * S, 3), (12 * S, 4))) == inserted((12 * S, 4), (15 * S, 2))
    assert player.turn([(DELETE, (15 * S, 2)), *inserted((15 * S, 5))]) == [(DELETE, (15 * S, 2))]
    assert player.played.late == [(0, (10 * S, 3)), (0, (15 * S, 5))]


@row("first row by event time")
def test_a_row_at_the_watermark_may_be_the_first() -> None:
    player = Player(partial(FirstRows, (0,), 1, ranked=False))
    player.turn(watermark_us=20 * S)
    player.turn(inserted(("a", 20 * S - 1), ("b", 20 * S)))
    assert player.played.late == [(0, ("a", 20 * S - 1))]
    assert player.played.said == inserted(("b", 20 * S))


@row("last row by event time")
def test_places_without_a_window_take_rows_behind_the_watermark() -> None:
    order = (OrderColumn(1, ascending=False),)
    make = partial(Ranker, (0,), order, "ROW_NUMBER", 1, 1, ranked=False, changing=False, newest_first=True)
    player = Player(make)
    player.turn(watermark_us=90 * S)
    assert player.turn(inserted(("a", 5 * S))) == inserted(("a", 5 * S))
    assert player.played.late == []


@row("interval join")
def test_an_interval_join_counts_a_row_that_comes_behind_all_its_partners() -> None:
    player = Player(lambda: IntervalJoiner(JoinShape(JoinKind.LEFT, 1, (2, 2)), (1, 1), -2 * S, 2 * S))
    player.turn([], inserted((1, "y", 10 * S)), watermark_us=10 * S)
    assert player.turn(inserted((1, "x", 8 * S), (2, "z", 8 * S)), []) == inserted(
        ("x", 8 * S, "y", 10 * S), ("z", 8 * S, None, None)
    )
    assert player.played.late == [(0, ("z", 8 * S))]
    # A row that waited until 12 s is gone; it is not found by what comes then.
    player.turn([], [], watermark_us=12 * S)
    assert player.turn(inserted((1, "w", 10 * S)), []) == inserted(("w", 10 * S, None, None))


@row("temporal join by event time")
def test_a_row_older_than_the_kept_versions_stands_alone() -> None:
    for kind in (JoinKind.INNER, JoinKind.LEFT):
        player = Player(partial(TemporalJoiner, JoinShape(kind, 1, (2, 2)), (1, 1)))
        player.turn([], inserted((1, "v1", 10 * S), (1, "v2", 20 * S)), watermark_us=30 * S)
        said = player.turn(inserted((1, "old", 15 * S), (1, "in time", 25 * S)), [])
        alone = [] if kind is JoinKind.INNER else inserted(("old", 15 * S, None, None))
        assert said == [*alone, *inserted(("in time", 25 * S, "v2", 20 * S))]
        assert player.played.late == [(0, ("old", 15 * S))]
        # A version behind the watermark is taken.
        player.turn([], inserted((1, "v3", 22 * S)))
        assert player.turn(inserted((1, "x", 25 * S)), []) == inserted(("x", 25 * S, "v3", 22 * S))


@row("temporal join by event time")
def test_a_version_older_than_a_deletion_is_valid_again_if_it_comes_behind_the_watermark() -> None:
    player = Player(partial(TemporalJoiner, JoinShape(JoinKind.INNER, 1, (2, 2)), (1, 1)))
    player.turn([], [(INSERT, (1, "v1", 10 * S)), (DELETE, (1, "v1", 20 * S))], watermark_us=30 * S)
    player.turn([], inserted((1, "late", 15 * S)))
    assert player.turn(inserted((1, "x", 40 * S)), [], watermark_us=50 * S) == inserted(("x", 40 * S, "late", 15 * S))


@row("MATCH_RECOGNIZE")
def test_a_pattern_takes_no_row_behind_the_watermark() -> None:
    player = Player(matcher(Variable("A"), {"A": ABOVE_0}))
    player.turn(watermark_us=20 * S)
    player.turn(inserted(("a", 20 * S, 1, True), ("b", 21 * S, 1, True)))
    assert player.played.late == [(0, ("a", 20 * S, 1, True))]
    assert {one[0] for _, one in player.end()} == {"b"}


@row("GROUP BY without a window")
def test_what_has_no_time_has_no_late_rows() -> None:
    player = Player(partial(Grouper, 1, COUNT, changing=False))
    player.turn(watermark_us=90 * S)
    assert player.turn(inserted(("a", 5 * S))) == inserted(("a", 1))
    assert player.played.late == []


@row("a row that is taken back")
def test_what_is_taken_back_from_a_window_that_is_over_is_not_counted() -> None:
    player = Player(partial(Windower, 1, COUNT, 1, Hopping(10 * S, 10 * S), changing=True))
    player.turn(inserted(("a", 4 * S)), watermark_us=10 * S)
    assert player.turn([(DELETE, ("a", 4 * S)), (INSERT, ("a", 5 * S))]) == []
    assert player.played.late == [(0, ("a", 5 * S))]
