"""`millstream rules test` and `rules why`: try rules of a store on events, without a job."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple

import msgspec
import orjson
from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.cli.messages.near_names import cluster
from millstream.cli.messages.shown_message import body_of
from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer, print_usage
from millstream.cli.rules.store import Store
from millstream.model.errors import ExtraMissing
from millstream.model.operations import PullStatus
from millstream.streams.errors import RuleError
from millstream.streams.rules.changes import choose_rules, find_rule
from millstream.streams.rules.conditions import predicates_of
from millstream.streams.rules.explain import (
    ConditionPart,
    deciding_parts,
    describe_predicate,
    draw,
    explain,
    find_nearest,
    quote_text,
)
from millstream.streams.rules.reference import FieldOf, evaluate, field_reader, text_of
from millstream.streams.rules.rule import Rule, RuleSet
from millstream.streams.rules.store import RuleStore
from millstream.streams.rules.watch import Watch

__all__ = ["Event", "events_of_file", "events_of_topic", "one_event", "one_message", "try_rules", "why"]


MAX_LINE_BYTES = 16 * 1024 * 1024
"""Bytes of one event of a file."""


class Event(NamedTuple):
    """One event and where it was read; `fields` is None where it is no JSON object."""

    place: str
    fields: dict[str, Any] | None


def events_of_file(path: Path) -> Iterator[Event]:
    """The events of a file of JSON lines, which zstd may have packed (`.zst`); `-` is standard input. RULE_EVENT."""
    with _open_events(path) as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise RuleError("RULE_EVENT", f"Line {number} of {path} is longer than {MAX_LINE_BYTES:,} bytes.")
            if line.strip():
                yield Event(f"line {number}", _fields(line))


@contextmanager
def _open_events(path: Path) -> Iterator[IO[bytes]]:
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    if sys.version_info >= (3, 14):
        from compression.zstd import ZstdError, ZstdFile
    else:
        from backports.zstd import ZstdError, ZstdFile
    try:
        file: IO[bytes] = path.open("rb")
        if path.suffix == ".zst":
            file = io.BufferedReader(ZstdFile(file))
        with file:
            yield file
    except OSError as error:
        raise RuleError("RULE_EVENT", f"The file {path} cannot be read: {error.strerror or error}.") from None
    except (ZstdError, EOFError) as error:
        raise RuleError("RULE_EVENT", f"The file {path} cannot be unpacked: {error}.") from None


def events_of_topic(topic: str, common: CommonOptions) -> Iterator[Event]:
    """The messages that a topic has now, from the first to the last of each queue."""
    with cluster(common) as client:
        for item in client.queue_ranges(topic):
            position, end = item.range.min_offset, item.range.max_offset
            while position < end:
                batch = client.pull(item.queue, position)
                if batch.status is PullStatus.FOUND:
                    for message in batch.messages(verify=True):
                        if message.queue_offset < end:
                            place = f"{topic}/{item.queue.queue_id}/{message.queue_offset}"
                            yield Event(place, _fields(body_of(message)))
                if batch.next_offset <= position:
                    break
                position = batch.next_offset


def one_event(path: Path) -> dict[str, Any]:
    """The only event of a file, or of standard input (`-`), on one line or several. RULE_EVENT."""
    with _open_events(path) as file:
        content = file.read(MAX_LINE_BYTES + 1)
    fields = _fields(content)
    if fields is None:
        first = content.split(b"\n", 1)[0]
        several = " Several events are tested by millstream rules test." if _fields(first) is not None else ""
        raise RuleError("RULE_EVENT", f"{_name(path)} holds no JSON object.{several}")
    return fields


def one_message(place: str, common: CommonOptions) -> dict[str, Any]:
    """The event of a message, told as TOPIC/QUEUE/OFFSET, or TOPIC/BROKER:QUEUE/OFFSET. RULE_EVENT."""
    parts = place.rsplit("/", 2)
    broker, _, queue = parts[1].rpartition(":") if len(parts) == 3 else ("", "", "")
    if len(parts) != 3 or not queue.isdecimal() or not parts[2].isdecimal():
        raise RuleError("RULE_EVENT", f"{place!r} names no message: write TOPIC/QUEUE/OFFSET.", remedy="")
    topic, offset = parts[0], int(parts[2])
    with cluster(common) as client:
        for item in client.queue_ranges(topic):
            if item.queue.queue_id != int(queue) or (broker and item.queue.broker_name != broker):
                continue
            batch = client.pull(item.queue, offset)
            if batch.status is not PullStatus.FOUND:
                continue
            for message in batch.messages(verify=True):
                if message.queue_offset == offset:
                    fields = _fields(body_of(message))
                    if fields is None:
                        raise RuleError("RULE_EVENT", f"The message {place} is no JSON object.")
                    return fields
    raise RuleError("RULE_EVENT", f"There is no message {place}.", remedy="Messages older than the retention are gone.")


def _name(path: Path) -> str:
    return "Standard input" if str(path) == "-" else f"The file {path}"


def _fields(content: bytes) -> dict[str, Any] | None:
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


BATCH_EVENTS = 4096
"""Events that the stage judges at once."""

_COLUMNS = ("rule", "title", "level", "hits", "first")
_EVIDENCE_CHARACTERS = 200
_SHOWN_REASONS = 10
_SHOWN_SLOW = 5
"""Rules that are named of those that ask a part that takes too long."""


def try_rules(
    *ids: str,
    store: Store,
    events: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    topic: str | None = None,
    all: Annotated[bool, Parameter(negative="")] = False,
    plain: Annotated[bool, Parameter(negative="")] = False,
    version: int | None = None,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Count the events that match each rule. Rules with statistics: the events that they would count.

    Examples: millstream rules test --store rules --events events.jsonl.zst;
    millstream rules test 'proc_*' --store rules --topic events.

    Parameters
    ----------
    ids
        Only these rules, also disabled ones; * and ? stand for any letters. Default: all that are enabled.
    store
        The directory of the rules.
    events
        A file with a JSON object per line, which may be compressed (.zst); - reads standard input.
    topic
        The messages that this topic has now.
    all
        Show rules without matches, too.
    plain
        Evaluate one rule after the other in plain Python, which is slow and needs no packages.
    version
        The rules of that version; default: the current one.
    """
    if (events is None) == (topic is None):
        return print_usage("Give --events FILE or --topic NAME.")
    rules = RuleStore(store)
    rule_set = rules.latest() if version is None else rules.load(version)
    tried = choose_rules(rule_set, ids) if ids else [rule for rule in rule_set.rules if rule.enabled]
    source = events_of_file(events) if events is not None else events_of_topic(topic or "", common)
    trial = _Trial([msgspec.structs.replace(rule, enabled=True) for rule in tried], rule_set.paths)
    trial.run(source, plain=plain)
    rows = [
        (rule.id, rule.title, rule.level, hits, first)
        for rule, hits, first in zip(tried, trial.hits, trial.firsts, strict=True)
        if hits or all
    ]
    rows.sort(key=lambda row: -row[3])
    fitting = sum(map(bool, trial.hits))
    words = f"{trial.events:,} events, {len(tried):,} rules, {sum(trial.hits):,} hits of {fitting:,} rules"
    Printer(common.output).listing(_COLUMNS, rows, empty=f"No rule fits any event: {words}.")
    if rows:
        print(words, file=sys.stderr)
    for line in trial.troubles:
        print(line, file=sys.stderr)
    return ExitCode.PARTLY_DONE if trial.troubles else ExitCode.DONE


_JudgeBatch = Callable[[Sequence[Event]], Iterable[tuple[int, int]]]


@dataclass
class _Trial:
    rules: Sequence[Rule]
    paths: dict[str, tuple[tuple[str, ...], ...]]
    events: int = 0
    troubles: list[str] = field(default_factory=list)
    _bad: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hits = [0] * len(self.rules)
        self.firsts: list[str | None] = [None] * len(self.rules)
        self._raised: dict[str, str] = {}

    def run(self, source: Iterator[Event], *, plain: bool) -> None:
        judge_batch: _JudgeBatch = self._judged_plainly if plain else self._stage()
        while batch := list(islice(source, BATCH_EVENTS)):
            self._bad += [event.place for event in batch if event.fields is None]
            good = [event for event in batch if event.fields is not None]
            self.events += len(good)
            for row, number in judge_batch(good):
                self.hits[number] += 1
                self.firsts[number] = self.firsts[number] or good[row].place
        if self._bad:
            count = (
                "1 event is no JSON object" if len(self._bad) == 1 else f"{len(self._bad):,} events are no JSON objects"
            )
            self.troubles.append(f"{count}; the first is {self._bad[0]}.")
        self.troubles += [f"The rule {name} cannot be judged: {reason}" for name, reason in self._raised.items()]

    def _stage(self) -> _JudgeBatch:
        try:
            from millstream.streams.rules.event_rows import JsonEvents
            from millstream.streams.rules.stage.stage import RuleStage
        except ModuleNotFoundError as error:
            raise ExtraMissing("Judging all rules at once", error.name, extra="streams") from None
        stage = RuleStage(RuleSet(0, tuple(self.rules), self.paths))

        def evaluate(events: Sequence[Event]) -> Iterable[tuple[int, int]]:
            found = stage.evaluate(JsonEvents([event.fields or {} for event in events], self.paths))
            for one in stage.quarantined:
                evidence = f": {one.evidence[:_EVIDENCE_CHARACTERS]}" if one.evidence else ""
                self._raised[one.rule_id] = f"{one.reason}{evidence}"
            return zip(found.rows.tolist(), found.rules.tolist(), strict=True)

        return evaluate

    def _judged_plainly(self, events: Sequence[Event]) -> Iterable[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        with Watch() as watch:
            for row, event in enumerate(events):
                read = field_reader(event.fields or {}, self.paths)
                for number, rule in enumerate(self.rules):
                    if rule.id not in self._raised and self._holds(rule, read, event.place, watch):
                        found.append((row, number))
        return found

    def _holds(self, rule: Rule, read: FieldOf, place: str, watch: Watch) -> bool:
        try:
            held = evaluate(rule.condition, read, watch.answer)
        except Exception as error:  # noqa: BLE001 - operands from a damaged file may be anything
            self._raised[rule.id] = f"{type(error).__name__}: {error} ({place})"
            return False
        failed = (
            [predicate for predicate in predicates_of(rule.condition) if predicate in watch.failures]
            if watch.failures
            else []
        )
        if failed:
            self._raised[rule.id] = f"{failed[0]}: {watch.failures[failed[0]].reason} ({place})"
        return held is True and not failed


def why(
    id: str = "",
    *,
    store: Store,
    event: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    message: str | None = None,
    count: Annotated[int, Parameter(name=["--count", "-n"], validator=Number(gte=1))] = 20,
    version: int | None = None,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Show why a rule matches an event or not: its condition, part by part, with what the event holds.

    A star marks what decided. Without a rule: the rules that fit the event, and those to which one part of several
    lacks, nearest first. Examples: millstream rules why shell --store rules --event event.json;
    millstream rules why shell --store rules --message events/3/1200.

    Parameters
    ----------
    id
        The rule's id, or its beginning if no other id begins so.
    store
        The directory of the rules.
    event
        A file with the event as a JSON object; - reads standard input.
    message
        The message with the event: TOPIC/QUEUE/OFFSET; TOPIC/BROKER:QUEUE/OFFSET if brokers share the topic.
    count
        Without a rule: so many at most.
    version
        The rules of that version; default: the current one.
    """
    if (event is None) == (message is None):
        return print_usage("Give --event FILE or --message TOPIC/QUEUE/OFFSET.")
    rules = RuleStore(store)
    rule_set: RuleSet = rules.latest() if version is None else rules.load(version)
    rule = find_rule(rule_set, id) if id else None
    fields = one_event(event) if event is not None else one_message(message or "", common)
    read = field_reader(fields, rule_set.paths)
    printer, watch = Printer(common.output), Watch()
    if rule is None:
        tried = [one for one in rule_set.rules if one.enabled]
        near = find_nearest(tried, read, watch)[:count]
        rows = [(one.rule.id, one.rule.title, one.rule.level, one.lacks is None, one.lacks) for one in near]
        empty = "No rule fits the event, or lacks only one part of several."
        printer.listing(("rule", "title", "level", "fits", "lacks"), rows, empty=empty)
        _check_in_time(tried, watch)
        return ExitCode.DONE
    found = explain(rule.condition, read, watch)
    if printer.format == "json":
        shown = {"rule": rule.id, "title": rule.title, "fits": found.held is True, "why": msgspec.to_builtins(found)}
        print(json.dumps(shown, ensure_ascii=False), flush=True)
    else:
        print("\n".join(_lines(rule, rule_set.version, found)), flush=True)
    _check_in_time([rule], watch)
    return ExitCode.DONE


def _check_in_time(rules: Sequence[Rule], watch: Watch) -> None:
    """Raise RULE_TOO_SLOW where a part of a rule was stopped, with the part and the rules that ask it."""
    for predicate, failure in watch.failures.items():
        if failure.too_slow:
            asking = [rule.id for rule in rules if predicate in predicates_of(rule.condition)]
            named = ", ".join(asking[:_SHOWN_SLOW]) + (" and others" if len(asking) > _SHOWN_SLOW else "")
            noun = "The rule" if len(asking) == 1 else "The rules"
            verb = "is" if len(asking) == 1 else "are"
            raise RuleError(
                "RULE_TOO_SLOW",
                f"{noun} {named} {verb} not judged to the end: {describe_predicate(predicate)} {failure.reason},"
                f" on {quote_text(text_of(failure.value))}.",
            )


def _lines(rule: Rule, version: int, found: ConditionPart) -> Iterator[str]:
    verdict = {True: "fits", False: "does not fit", None: "does not fit (it is not known whether its condition holds)"}
    yield f"{rule.id} ({rule.title}), version {version}: the event {verdict[found.held]}"
    if not rule.enabled:
        yield "The rule is switched off."
    if rule.statistics is not None:
        yield "The rule counts events: this tells whether the event is one of them."
    yield from ("", *draw(found))
    if found.held is not True:
        decided = list(dict.fromkeys(one.asks for one in deciding_parts(found)))
        yield from ("", "It fails because of:")
        yield from (f"  {asks}" for asks in decided[:_SHOWN_REASONS])
        if len(decided) > _SHOWN_REASONS:
            yield f"  and {len(decided) - _SHOWN_REASONS} more"
