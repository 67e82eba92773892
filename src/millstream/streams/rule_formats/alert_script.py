"""Generates the script of an alert job: for rules on single events and for counting rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from millstream.streams.rules.chains import links_of, part_marks, unfit_chain
from millstream.streams.rules.rule import MeasureKind, Rule, RuleStatistics

__all__ = ["AlertScript", "Uncounted"]

_HITS = """CREATE TABLE hits (
  rule STRING, title STRING, level STRING, tags ARRAY<STRING>, version BIGINT, event_time TIMESTAMP_LTZ(3),
  event STRING, shows MAP<STRING, STRING>, measure STRING, window_ms BIGINT, at_least BIGINT, at_most BIGINT,
  lower DOUBLE, upper DOUBLE, other_than DOUBLE, bounds STRING, holds STRING, steps BIGINT,
  group_key STRING, measured STRING,{number}
  WATERMARK FOR event_time AS event_time - {delay}
) WITH ({options});"""

_ALERTS = """CREATE TABLE alerts (
  rule STRING, title STRING, level STRING, tags ARRAY<STRING>, version BIGINT, event_time TIMESTAMP_LTZ(3),
  event STRING, shows MAP<STRING, STRING>
) WITH ({options});"""

_COUNTED = """CREATE TABLE counted_alerts (
  rule STRING, title STRING, level STRING, measure STRING, window_start TIMESTAMP_LTZ(3),
  window_end TIMESTAMP_LTZ(3), group_key STRING, measured BIGINT, at_least BIGINT
) WITH ({options});"""

_MEASURED = """CREATE TABLE measured_alerts (
  rule STRING, title STRING, level STRING, measure STRING, window_start TIMESTAMP_LTZ(3),
  window_end TIMESTAMP_LTZ(3), group_key STRING, measured DOUBLE, bounds STRING
) WITH ({options});"""

_PLAIN = """INSERT INTO alerts SELECT rule, title, level, tags, version, event_time, event, shows
  FROM hits WHERE measure IS NULL;"""

_WINDOW = """INSERT INTO {table}
  SELECT rule, MAX(title), MAX(level), '{measure}', window_start, window_end, group_key, {value}, MAX({columns})
  FROM TABLE(TUMBLE(TABLE {source}, DESCRIPTOR(event_time), {window}))
  WHERE measure = '{measure}' AND window_ms = {window_ms}{apart}
  GROUP BY rule, group_key, window_start, window_end
  HAVING {holds};"""

_SLIDING = """INSERT INTO {table}
  SELECT rule, title, level, '{measure}', event_time - {window}, event_time, group_key, value, {columns}
  FROM (
    SELECT *, FIRST_VALUE(one) OVER {frame} AS first_one
    FROM (
      SELECT rule, title, level, event_time, group_key, {columns}, value, UUID() AS one
      FROM (SELECT *, {value} OVER {frame} AS value FROM {source}
        WHERE measure = '{measure}' AND window_ms = {window_ms}{apart})
      WHERE {holds}
    )
  )
  WHERE one = first_one;"""
"""Of events at one time, for which the same holds, one is told; state is kept for the length of a window alone."""

_FRAME = """(PARTITION BY rule, group_key ORDER BY event_time
        RANGE BETWEEN {window} PRECEDING AND CURRENT ROW)"""

_COUNT_HOLDS = """{value} >= {of}(at_least) AND ({of}(at_most) IS NULL OR {value} <= {of}(at_most))
    AND ({of}(other_than) IS NULL OR {value} <> {of}(other_than))"""

_NUMBER_HOLDS = """({of}(lower) IS NULL OR {value} >= {of}(lower)) AND ({of}(upper) IS NULL OR {value} <= {of}(upper))
    AND ({of}(other_than) IS NULL OR {value} <> {of}(other_than))"""

_COMBINATION_HOLDS = "SUBSTRING(MAX(holds), BIT_OR(CAST(measured AS INT)) + 1, 1) = '1'"

_SEQUENCE = """INSERT INTO counted_alerts
  SELECT rule, title, level, 'sequence', began, ended, group_key, CAST({steps} AS BIGINT), at_least
  FROM (SELECT * FROM {source} WHERE measure = 'sequence' AND window_ms = {window_ms} AND steps = {steps}{apart})
  MATCH_RECOGNIZE (
    PARTITION BY rule, group_key ORDER BY event_time
    MEASURES LAST(S{steps}.title) AS title, LAST(S{steps}.level) AS level, LAST(S{steps}.at_least) AS at_least,
      FIRST(S1.event_time) AS began, LAST(S{steps}.event_time) AS ended
    ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
    PATTERN ({pattern}) WITHIN {window}
    DEFINE {defines}
  );"""

_CHAIN_COLUMNS = """rule, title, level, event_time, measure, window_ms, at_least, at_most, other_than, holds, steps,
    group_key, measured"""

_CHAIN = """CREATE VIEW {view} AS SELECT {columns}
  FROM hits WHERE rule IN ({rules}){links};"""

_LINK = """
  UNION ALL SELECT {columns}
  FROM TABLE(TUMBLE(TABLE hits, DESCRIPTOR(event_time), {window}))
  WHERE rule = '{rule}' AND measure = '{measure}' AND window_ms = {window_ms}
  GROUP BY group_key, window_start, window_end, window_time
  HAVING {holds}"""

_COUNTS = {
    MeasureKind.EVENTS: "COUNT(*)",
    MeasureKind.VALUES: "COUNT(DISTINCT measured)",
    MeasureKind.PARTS: "COUNT(DISTINCT measured)",
    MeasureKind.COMBINATION: "COUNT(DISTINCT measured)",
}
_SUMS = {**_COUNTS, MeasureKind.EVENTS: "SUM(hits)"}
"""The same where a row may stand for several hits."""

_NUMBERS = {
    MeasureKind.SUM: "SUM(CAST(measured AS DOUBLE))",
    MeasureKind.AVERAGE: "AVG(CAST(measured AS DOUBLE))",
    MeasureKind.MINIMUM: "MIN(CAST(measured AS DOUBLE))",
    MeasureKind.MAXIMUM: "MAX(CAST(measured AS DOUBLE))",
    MeasureKind.PERCENTILE: "PERCENTILE(CAST(measured AS DOUBLE), {fraction})",
}


@dataclass(frozen=True, slots=True)
class Uncounted:
    """A rule that a script has no place for, and why."""

    rule: str
    reason: str


@dataclass(frozen=True)
class AlertScript:
    """A script over the topic and rules of `source` (options of the connector rules), alerts to a table of `sink`.

    Rules that count alike (what, and in windows of one size) share one query, with the rule in its key. Events may come
    `delay_ms` late. Where the source names a topic for hits, those that only count come merged.
    """

    source: Mapping[str, str]
    sink: Mapping[str, str]
    delay_ms: int = 5_000
    settings: Mapping[str, str] = field(default_factory=dict)

    def text(self, rules: Sequence[Rule]) -> tuple[str, list[Uncounted]]:
        """The script for those of the rules that are enabled, and those that it does not count."""
        by_id = {rule.id: rule for rule in rules if rule.enabled}
        shapes: set[_Shape] = set()
        chains: dict[_Shape, list[Rule]] = {}
        uncounted, silent = [], []
        for rule in by_id.values():
            if rule.statistics is None:
                continue
            reason = _unfit(rule, rule.statistics, by_id)
            if reason is not None:
                uncounted.append(Uncounted(rule.id, reason))
            elif links_of(rule, by_id):
                chains.setdefault(_Shape.of(rule.statistics), []).append(rule)
            elif rule.alerts:
                shapes.add(_Shape.of(rule.statistics))
            else:
                silent.append(rule)
        packed = "hits.topic" in self.source
        counts = _SUMS if packed else _COUNTS
        chained = [rule for some in chains.values() for rule in some]
        apart = f" AND rule NOT IN ({_list_ids([*silent, *chained])})" if silent or chained else ""
        inserts = [_PLAIN, *(_insert(shape, counts, apart=apart) for shape in sorted(shapes))]
        views = []
        for number, shape in enumerate(sorted(chains), 1):
            loud = [rule for rule in chains[shape] if rule.alerts]
            if loud:
                views.append(_chain(f"chain_{number}", loud, by_id, counts, packed=packed))
                inserts.append(_insert(shape, counts, source=f"chain_{number}"))
        numbers = {shape.kind.is_number for shape in (*shapes, *chains)}
        options = _options({"connector": "rules", **self.source})
        tables = [
            _HITS.format(delay=_interval(self.delay_ms), options=options, number="\n  hits BIGINT," if packed else ""),
            _ALERTS.format(options=_options(self.sink)),
            *([_COUNTED.format(options=_options(self.sink))] if False in numbers else []),
            *([_MEASURED.format(options=_options(self.sink))] if True in numbers else []),
        ]
        settings = [f"SET '{name}' = '{_quote(value)}';" for name, value in self.settings.items()]
        return "\n".join([*settings, *tables, *views, "EXECUTE STATEMENT SET BEGIN", *inserts, "END;"]), uncounted


class _Shape(NamedTuple):
    """What rules have in common that one query counts for."""

    name: str
    window_ms: int
    steps: int
    kind: MeasureKind
    percent: int
    sliding: bool

    @classmethod
    def of(cls, statistics: RuleStatistics) -> _Shape:
        """That of a rule with these statistics."""
        measure = statistics.measure
        steps = len(statistics.parts) if measure.kind is MeasureKind.SEQUENCE else 0
        return cls(measure.name, statistics.window_ms, steps, measure.kind, measure.percent or 0, measure.sliding)

    def value(self, counts: Mapping[MeasureKind, str]) -> str:
        """What is measured, in SQL."""
        return _NUMBERS[self.kind].format(fraction=self.percent / 100) if self.kind.is_number else counts[self.kind]

    def holds(self, value: str, of: str = "MAX") -> str:
        """Whether the value is within the bounds of its rule, in SQL; of a group's rows these are `of` all."""
        words = _COMBINATION_HOLDS if self.kind is MeasureKind.COMBINATION else _COUNT_HOLDS
        return (_NUMBER_HOLDS if self.kind.is_number else words).format(value=value, of=of)


def _unfit(rule: Rule, statistics: RuleStatistics, rules: Mapping[str, Rule]) -> str | None:
    links = links_of(rule, rules)
    reason = unfit_chain(statistics, links, rules) if links else None
    if reason is None and statistics.measure.sliding:
        reason = statistics.unfit_to_slide
    if reason is not None or statistics.measure.kind is not MeasureKind.SEQUENCE:
        return reason
    if statistics.at_least != len(statistics.parts) or statistics.at_most is not None:
        return "only whole sequences are found, not a number of their steps"
    return None


def _insert(shape: _Shape, counts: Mapping[MeasureKind, str], *, source: str = "hits", apart: str = "") -> str:
    if shape.kind is MeasureKind.SEQUENCE:
        return _sequence(shape.window_ms, shape.steps, source, apart)
    value = shape.value(counts)
    return (_SLIDING if shape.sliding else _WINDOW).format(
        table="measured_alerts" if shape.kind.is_number else "counted_alerts",
        measure=shape.name,
        value=value,
        columns="bounds" if shape.kind.is_number else "at_least",
        window=_interval(shape.window_ms),
        window_ms=shape.window_ms,
        frame=_FRAME.format(window=_interval(shape.window_ms)),
        holds=shape.holds("value", of="") if shape.sliding else shape.holds(value),
        source=source,
        apart=apart,
    )


def _chain(
    view: str, rules: Sequence[Rule], by_id: Mapping[str, Rule], counts: Mapping[MeasureKind, str], *, packed: bool
) -> str:
    """The view of what rules of one shape count: hits, and the windows that rules tell which they count."""
    links = "".join(_link(rule, link, counts, packed=packed) for rule in rules for link in links_of(rule, by_id))
    columns = f"{_CHAIN_COLUMNS}{', hits' if packed else ''}"
    return _CHAIN.format(view=view, columns=columns, rules=_list_ids(rules), links=links)


def _link(rule: Rule, link: Rule, counts: Mapping[MeasureKind, str], *, packed: bool) -> str:
    outer, inner = rule.statistics, link.statistics
    assert outer is not None
    assert inner is not None
    columns = (
        _text(rule.id),
        _text(rule.title),
        _text(rule.level),
        "window_time",
        _text(outer.measure.name),
        _cast_number(outer.window_ms, "BIGINT"),
        _cast_number(outer.at_least, "BIGINT"),
        _cast_number(outer.at_most, "BIGINT"),
        _cast_number(outer.other_than, "DOUBLE"),
        _text(None if outer.combination is None else outer.combination.holds),
        _cast_number(len(outer.parts), "BIGINT"),
        "group_key" if outer.by else "'[]'",
        _text(part_marks(outer).get(link.id)),
        *([_cast_number(1, "BIGINT")] if packed else ()),
    )
    shape = _Shape.of(inner)
    return _LINK.format(
        columns=", ".join(columns),
        window=_interval(shape.window_ms),
        rule=_quote(link.id),
        measure=shape.name,
        window_ms=shape.window_ms,
        holds=shape.holds(shape.value(counts)),
    )


def _list_ids(rules: Sequence[Rule]) -> str:
    return ", ".join(_text(rule.id) for rule in rules)


def _text(text: str | None) -> str:
    return "CAST(NULL AS STRING)" if text is None else f"'{_quote(text)}'"


def _cast_number(number: float | None, kind: str) -> str:
    return f"CAST({'NULL' if number is None else number} AS {kind})"


def _sequence(window_ms: int, steps: int, source: str, apart: str) -> str:
    window = _interval(window_ms)
    numbers = range(1, steps + 1)
    pattern = " ".join(f"X{number}*? S{number}" if number > 1 else "S1" for number in numbers)
    # A part that stands twice in a sequence is several steps: '1,3'.
    defines = ", ".join(f"S{number} AS CONCAT(',', S{number}.measured, ',') LIKE '%,{number},%'" for number in numbers)
    return _SEQUENCE.format(
        steps=steps,
        window_ms=window_ms,
        window=window,
        pattern=pattern,
        defines=defines,
        source=source,
        apart=apart,
    )


def _interval(duration_ms: int) -> str:
    return f"INTERVAL '{duration_ms // 1000}.{duration_ms % 1000:03}' SECOND"


def _options(options: Mapping[str, str]) -> str:
    return ", ".join(f"'{name}' = '{_quote(value)}'" for name, value in options.items())


def _quote(text: str) -> str:
    return text.replace("'", "''")
