"""MATCH_RECOGNIZE: one row per match, in time order."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from millstream.streams.operators.keys import OrderColumn, row_key, rows_by_key
from millstream.streams.operators.operator import BatchTimes, Changes, OperatorOutput, Row
from millstream.streams.operators.patterns.navigation import Formula, Matched, reader_of
from millstream.streams.operators.patterns.search import PartialMatch, PatternSpec, Search, Searcher
from millstream.streams.operators.state import KeyedTable, KeyTimers, OperatorState
from millstream.streams.operators.watermark_buffer import WatermarkBuffer

__all__ = ["Matcher"]

_Packed = tuple[int, int, int, list[Any], list[Any]]
"""The number of the first row kept, of the next to come, of the next to look at; rows that fitted; what has begun."""


class Matcher:
    """The partition's columns, then the measures of each match. Rows are never taken back.

    `time` is the place of the event time: rows wait for the watermark, and late ones are left out. None: processing
    time. A row is kept while a match that has begun, or a neighbour that looks back, may read it.
    """

    def __init__(
        self,
        partition: tuple[int, ...],
        order: tuple[OrderColumn, ...],
        pattern: PatternSpec,
        measures: tuple[Formula, ...],
        *,
        time: int | None,
    ) -> None:
        self._partition = partition
        self._key = row_key(partition)
        self._time = time
        formulas = (*measures, *(of for _, of in pattern.defines if isinstance(of, Formula)))
        read = list(chain.from_iterable(formula.navigations for formula in formulas))
        self._behind = max((one.offset for one in read if one.kind == "prev"), default=0)
        ahead = max((one.offset for one in read if one.kind == "next"), default=0)
        # Rows by processing time carry it behind their columns.
        self._searcher = Searcher(pattern, itemgetter(-1 if time is None else time), ahead)
        self._within_us = pattern.within_us
        self._measures = [reader_of(measure) for measure in measures]
        self._waiting = None if time is None else WatermarkBuffer(time, order)
        self._arrived: list[Row] = []
        self._rows: KeyedTable[tuple[Hashable, int], Row] = KeyedTable()
        self._searches: KeyedTable[Hashable, _Packed] = KeyedTable()
        self._ends: KeyTimers[Hashable] = KeyTimers()

    def open(self, state: OperatorState) -> None:
        """Waiting rows; rows by partition and number; searches by partition, and when the oldest match is over."""
        if self._waiting is not None:
            self._waiting.open(state)
        self._rows = state.table("rows")
        self._searches = state.table("searches", lives=True)
        self._ends = state.timers("ends")

    def process(self, number: int, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> None:
        """Take rows."""
        if self._waiting is None:
            self._arrived += [(*row, turn.now_us) for row in changes.rows]
        else:
            out.late += [(number, row) for row in self._waiting.take(changes.rows, turn)]

    def advance(self, turn: BatchTimes, out: OperatorOutput) -> None:
        """Look at the rows whose time has come; say the matches that are sure."""
        rows = self._waiting.due(turn) if self._waiting is not None else self._arrived
        self._arrived = []
        for key, members in rows_by_key(rows, self._key).items():
            skipped = self._searcher.before_any(members) if not self._behind and key not in self._searches else 0
            if skipped == len(members):
                continue
            search = self._unpack(key)
            for row in members[skipped:]:
                if found := self._searcher.feed(search, row):
                    self._emit_matches(found, search, out)
            self._keep(key, search)
        now_us = turn.watermark_us if self._time is not None else turn.now_us - 1
        for _, key in self._ends.due(now_us):
            search = self._unpack(key)
            self._emit_matches(self._searcher.expire(search, now_us), search, out)
            self._keep(key, search)
        if turn.is_last:
            for key, _ in list(self._searches.items()):
                search = self._unpack(key)
                self._emit_matches(self._searcher.finish(search), search, out)
                self._forget(key, search.coming)
        for key, packed in self._searches.expire():
            self._forget_rows(key, packed[0], packed[1])

    def _emit_matches(self, found: Sequence[Matched], search: Search, out: OperatorOutput) -> None:
        rows = search.rows
        for matched in found:
            row = rows[matched.number]
            out.insert((*(row[place] for place in self._partition), *(read(matched, rows) for read in self._measures)))

    def _unpack(self, key: Hashable) -> Search:
        packed = self._searches.get(key)
        if packed is None:
            return Search({}, 0, 0, [])
        first, coming, looking, fitted, begun = packed
        rows = {number: row for number in range(first, coming) if (row := self._rows.get((key, number))) is not None}
        matched: list[Matched | None] = []
        for variable, number, before, sums in fitted:
            matched.append(Matched(variable, number, None if before is None else matched[before], sums))
        matched.append(None)
        # None stands at the end, which is place -1.
        return Search(
            rows,
            coming,
            looking,
            [
                PartialMatch(number, time_us, [(state, matched[place]) for state, place in ways], matched[best])
                for number, time_us, ways, best in begun
            ],
        )

    def _keep(self, key: Hashable, search: Search) -> None:
        """Write what has changed of a partition; rows that nothing reads any more go."""
        start = min([search.looking, *(one.number for one in search.partial_matches)])
        first = max(0, start - self._behind)
        packed = self._searches.get(key)
        known = (0, 0) if packed is None else packed[:2]
        self._forget_rows(key, known[0], min(first, known[1]))
        if first == search.coming:
            self._searches.delete(key)
            self._ends.clear(key)
            return
        for number in range(max(known[1], first), search.coming):
            self._rows.put((key, number), search.rows[number])
        fitted, begun = _pack_matches(search.partial_matches)
        self._searches.put(key, (first, search.coming, search.looking, fitted, begun))
        # Rows that wait for those behind them are looked at first.
        if self._within_us is not None and search.partial_matches and search.looking == search.coming:
            self._ends.set(key, search.partial_matches[0].time_us + self._within_us)
        else:
            self._ends.clear(key)

    def _forget(self, key: Hashable, coming: int) -> None:
        packed = self._searches.delete(key)
        self._ends.clear(key)
        if packed is not None:
            self._forget_rows(key, packed[0], coming)

    def _forget_rows(self, key: Hashable, first: int, end: int) -> None:
        for number in range(first, end):
            self._rows.delete((key, number))


def _pack_matches(begun: Sequence[PartialMatch]) -> tuple[list[Any], list[Any]]:
    """What has begun as plain lists: each row that fitted once, by its place, behind those before it."""
    places: dict[int, int] = {}
    fitted: list[Any] = []

    def place_of(matched: Matched | None) -> int:
        chain_of: list[Matched] = []
        while matched is not None and id(matched) not in places:
            chain_of.append(matched)
            matched = matched.before
        place = -1 if matched is None else places[id(matched)]
        for one in reversed(chain_of):
            fitted.append((one.variable, one.number, None if place < 0 else place, one.sums))
            place = places[id(one)] = len(fitted) - 1
        return place

    return fitted, [
        (one.number, one.time_us, [(state, place_of(matched)) for state, matched in one.ways], place_of(one.best))
        for one in begun
    ]
