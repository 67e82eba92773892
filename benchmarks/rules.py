"""The rule stage alone: against Python's `re`, against hyperscan by share of repeats, and by number of rules."""

from __future__ import annotations

import itertools
import random
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

from millstream.streams.rules.conditions import Condition, Not, Op, Predicate, all_of
from millstream.streams.rules.event_rows import JsonEvents
from millstream.streams.rules.rule import Rule, RuleSet
from millstream.streams.rules.stage.stage import RuleStage

__all__ = ["measure_rules"]

_EXPRESSIONS = 1_000
_ROWS = 20_000
_ROWS_PER_BATCH = 5_000
_RE_ROWS = 100
"""For the loop over Python's `re`, which is slow."""

_REPEATED_LINES = 1_000
_SHARES = (0, 20, 50, 80, 95)
"""Percent of the rows whose line is one of the repeated ones."""

_VERBS = ("open", "read", "write", "close", "start", "stop")

Figures = dict[str, Any]
Event = dict[str, Any]


class _Lines:
    """Log lines of about 110 characters."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._repeated = [self._new() for _ in range(_REPEATED_LINES)]

    def _new(self) -> str:
        chance = self._chance
        return (
            f"2026-01-{chance.randrange(1, 29):02d} host{chance.randrange(500)} {chance.choice(_VERBS)} "
            f"user=u{chance.randrange(10_000)} path=C:\\data\\p{chance.randrange(100_000)}"
            f"\\tool{chance.randrange(4_000)}.exe "
            f"code={chance.randrange(1_000_000)} took={chance.randrange(10_000)}ms"
        )

    def rows(self, percent: int) -> list[str]:
        """As many lines as are measured, of which so many percent are repeated ones."""
        chance = self._chance
        return [chance.choice(self._repeated) if chance.randrange(100) < percent else self._new() for _ in range(_ROWS)]


def measure_rules() -> Figures:
    """Rows a second of one core for 1,000 expressions, and microseconds a row for 10 and 1,000 mixed rules."""
    expressions = [
        rf"(?i)(open|start) user=u\d+ path=\S+\\tool{number}\.exe code=\d*{number % 10} "
        for number in range(_EXPRESSIONS)
    ]
    rules = _rule_set([Predicate("line", Op.MATCHES, (one,)) for one in expressions])
    lines = _Lines(5)
    found: Figures = {
        f"repeats_{percent}": _against_hyperscan(rules, expressions, lines, percent) for percent in _SHARES
    }
    re_rows_per_s = _re_rows_per_s(expressions, lines.rows(80)[:_RE_ROWS])
    stage_rows_per_s = found["repeats_80"]["stage_rows_per_s"]
    found["re_rows_per_s"] = round(re_rows_per_s)
    found["stage_to_re"] = round(stage_rows_per_s / re_rows_per_s, 1)
    few, many = _us_per_row(10), _us_per_row(1_000)
    found["us_per_row"] = {"rules_10": few, "rules_1000": many, "ratio": round(many / few, 2)}
    return found


def _rule_set(conditions: Sequence[Condition]) -> RuleSet:
    return RuleSet(1, tuple(Rule(str(number), "", one) for number, one in enumerate(conditions)))


def _against_hyperscan(rules: RuleSet, expressions: Sequence[str], lines: _Lines, percent: int) -> Figures:
    """A stage that knows the repeated lines, and one scan of each row."""
    import hyperscan

    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    flags = hyperscan.HS_FLAG_SINGLEMATCH | hyperscan.HS_FLAG_UTF8
    database.compile(expressions=[one.encode() for one in expressions], flags=[flags] * len(expressions))
    stage = RuleStage(rules)
    _judge(stage, [{"line": line} for line in lines.rows(percent)])
    events = [{"line": line} for line in lines.rows(percent)]
    hits: list[int] = []
    began_s = time.process_time()
    for event in events:
        database.scan(event["line"].encode(), match_event_handler=lambda number, *_: hits.append(number))
    scanned_s = time.process_time()
    told = _judge(stage, events)
    judged_s = time.process_time()
    if told != len(hits):
        raise RuntimeError(f"the stage has {told} hits, hyperscan {len(hits)}")
    return {
        "hyperscan_rows_per_s": round(_ROWS / (scanned_s - began_s)),
        "stage_rows_per_s": round(_ROWS / (judged_s - scanned_s)),
        "ratio": round((scanned_s - began_s) / (judged_s - scanned_s), 2),
        "cache_on": bool(stage.statistics().groups[0].caches_on),
    }


def _re_rows_per_s(expressions: Sequence[str], rows: Sequence[str]) -> float:
    searches = [re.compile(one).search for one in expressions]
    began_s = time.process_time()
    for line in rows:
        for search in searches:
            search(line)
    return len(rows) / (time.process_time() - began_s)


def _batches(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    for start in range(0, len(events), _ROWS_PER_BATCH):
        yield events[start : start + _ROWS_PER_BATCH]


def _judge(stage: RuleStage, events: Sequence[Event]) -> int:
    return sum(len(stage.evaluate(JsonEvents(batch, {})).rows) for batch in _batches(events))


def _us_per_row(count: int) -> float:
    """Mixed rules as detections are: a kind of event, the end of one field or a part of another, and an exception."""
    kinds = itertools.cycle(range(20))
    conditions = [
        all_of(
            Predicate("kind", Op.IN, (next(kinds),)),
            Predicate("image", Op.ENDS, (f"\\tool{number}.exe",), caseless=True)
            if number % 2
            else Predicate("command", Op.CONTAINS, (f"-x{number} ",), caseless=True),
            Not(Predicate("user", Op.STARTS, ("SYSTEM",), caseless=True, absent=False)),
        )
        for number in range(count)
    ]
    chance = random.Random(7)
    events = [
        {
            "kind": chance.randrange(20),
            "image": f"C:\\Windows\\p{chance.randrange(300)}\\Tool{chance.randrange(2_000)}.exe",
            "command": f"tool -x{chance.randrange(4_000)} -id {chance.randrange(10**9)} /q",
            "user": chance.choice(("system", "eve", "bob")),
        }
        for _ in range(2 * _ROWS)
    ]
    stage = RuleStage(_rule_set(conditions))
    _judge(stage, events[:_ROWS])
    began_s = time.process_time()
    _judge(stage, events[_ROWS:])
    return round((time.process_time() - began_s) / _ROWS * 1e6, 2)
