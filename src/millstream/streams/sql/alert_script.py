"""The script of a job that makes alerts of hits: those of rules that look at one event, and those that count many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from millstream.streams.rules.rule import Measure, MeasureKind, Rule

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
  SELECT rule, MAX(title), MAX(level), '{measure}', window_start, window_end, group_key, {value}, MAX({told})
  FROM TABLE(TUMBLE(TABLE hits, DESCRIPTOR(event_time), {window}))
  WHERE measure = '{measure}' AND window_ms = {window_ms}
  GROUP BY rule, group_key, window_start, window_end
  HAVING {holds};"""

_COUNT_HOLDS = """{value} >= MAX(at_least) AND (MAX(at_most) IS NULL OR {value} <= MAX(at_most))
    AND (MAX(other_than) IS NULL OR {value} <> MAX(other_than))"""

_NUMBER_HOLDS = """(MAX(lower) IS NULL OR {value} >= MAX(lower)) AND (MAX(upper) IS NULL OR {value} <= MAX(upper))
    AND (MAX(other_than) IS NULL OR {value} <> MAX(other_than))"""

_COMBINATION_HOLDS = "SUBSTRING(MAX(holds), BIT_OR(CAST(measured AS INT)) + 1, 1) = '1'"

_SEQUENCE = """INSERT INTO counted_alerts
  SELECT rule, title, level, 'sequence', began, ended, group_key, CAST({steps} AS BIGINT), at_least
  FROM (SELECT * FROM hits WHERE measure = 'sequence' AND window_ms = {window_ms} AND steps = {steps})
  MATCH_RECOGNIZE (
    PARTITION BY rule, group_key ORDER BY event_time
    MEASURES LAST(S{steps}.title) AS title, LAST(S{steps}.level) AS level, LAST(S{steps}.at_least) AS at_least,
      FIRST(S1.event_time) AS began, LAST(S{steps}.event_time) AS ended
    ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
    PATTERN ({pattern}) WITHIN {window}
    DEFINE {defines}
  );"""

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
        shapes: dict[tuple[Measure, int, int], None] = {}
        uncounted = []
        for rule in rules:
            statistics = rule.statistics
            if statistics is None or not rule.enabled:
                continue
            reason = _unfit(rule)
            if reason is not None:
                uncounted.append(Uncounted(rule.id, reason))
                continue
            measure = statistics.measure
            steps = len(statistics.parts) if measure.kind is MeasureKind.SEQUENCE else 0
            shapes[Measure(measure.kind, percent=measure.percent), statistics.window_ms, steps] = None
        packed = "hits.topic" in self.source
        counts = _SUMS if packed else _COUNTS
        ordered = sorted(shapes, key=lambda shape: (shape[0].name, *shape[1:]))
        inserts = [_PLAIN, *(_insert(*shape, counts) for shape in ordered)]
        numbers = {measure.kind.is_number for measure, _, _ in shapes}
        options = _options({"connector": "rules", **self.source})
        tables = [
            _HITS.format(delay=_interval(self.delay_ms), options=options, number="\n  hits BIGINT," if packed else ""),
            _ALERTS.format(options=_options(self.sink)),
            *([_COUNTED.format(options=_options(self.sink))] if False in numbers else []),
            *([_MEASURED.format(options=_options(self.sink))] if True in numbers else []),
        ]
        settings = [f"SET '{name}' = '{_quoted(value)}';" for name, value in self.settings.items()]
        return "\n".join([*settings, *tables, "EXECUTE STATEMENT SET BEGIN", *inserts, "END;"]), uncounted


def _unfit(rule: Rule) -> str | None:
    statistics = rule.statistics
    if statistics is None or statistics.measure.kind is not MeasureKind.SEQUENCE:
        return None
    if statistics.at_least != len(statistics.parts) or statistics.at_most is not None:
        return "only whole sequences are found, not a number of their steps"
    return None


def _insert(measure: Measure, window_ms: int, steps: int, counts: Mapping[MeasureKind, str]) -> str:
    if measure.kind is MeasureKind.SEQUENCE:
        return _sequence(window_ms, steps)
    if measure.kind.is_number:
        value = _NUMBERS[measure.kind].format(fraction=(measure.percent or 0) / 100)
        table, told, holds = "measured_alerts", "bounds", _NUMBER_HOLDS
    else:
        value = counts[measure.kind]
        table, told = "counted_alerts", "at_least"
        holds = _COMBINATION_HOLDS if measure.kind is MeasureKind.COMBINATION else _COUNT_HOLDS
    return _WINDOW.format(
        table=table,
        measure=measure.name,
        value=value,
        told=told,
        window=_interval(window_ms),
        window_ms=window_ms,
        holds=holds.format(value=value),
    )


def _sequence(window_ms: int, steps: int) -> str:
    window = _interval(window_ms)
    numbers = range(1, steps + 1)
    pattern = " ".join(f"X{number}*? S{number}" if number > 1 else "S1" for number in numbers)
    # A part that stands twice in a sequence is several steps: '1,3'.
    defines = ", ".join(f"S{number} AS CONCAT(',', S{number}.measured, ',') LIKE '%,{number},%'" for number in numbers)
    return _SEQUENCE.format(steps=steps, window_ms=window_ms, window=window, pattern=pattern, defines=defines)


def _interval(duration_ms: int) -> str:
    return f"INTERVAL '{duration_ms // 1000}.{duration_ms % 1000:03}' SECOND"


def _options(options: Mapping[str, str]) -> str:
    return ", ".join(f"'{name}' = '{_quoted(value)}'" for name, value in options.items())


def _quoted(text: str) -> str:
    return text.replace("'", "''")
