"""Failed user function calls and CASTs: counted, and their rows sent to a topic."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from millstream.model.message import Message
from millstream.streams.connectors.registry import connector_of
from millstream.streams.connectors.rocketmq.settings import SourceSettings
from millstream.streams.connectors.rocketmq.sink import SEND_TIMEOUT_S, MessageMaker, TopicSink
from millstream.streams.errors import JobError
from millstream.streams.functions.user_functions.failed_calls import FailedCall
from millstream.streams.jobs.outputs import Output
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.optimizer.strict_casts import (
    PROPERTIES,
    BadCastRows,
    dead_letter_topic_of,
    divert_bad_casts,
    fail_on_bad_casts,
)
from millstream.streams.plan.tables import Table
from millstream.streams.spark.functions.user_calls import SpooledCall
from millstream.streams.spark.source.topic_log import open_log
from millstream.streams.state.spool import Spool

__all__ = ["MAX_PROPERTY", "FailedCalls", "has_dead_letter_topic", "with_bad_casts"]


def with_bad_casts(outputs: Sequence[Output], settings: JobSettings) -> list[Output]:
    """The outputs with what the job asks for; one more for each place from which rows go to a dead-letter topic."""
    if settings.bad_cast == "fail":
        return [replace(output, node=fail_on_bad_casts(output.node)) for output in outputs]
    if settings.bad_cast != "dead-letter":
        return list(outputs)
    changed, letters = [], []
    for output in outputs:
        node, found = divert_bad_casts(output.node)
        changed.append(replace(output, node=node))
        letters += found
    return changed + [_output(one, settings) for one in letters]


def _output(letters: BadCastRows, settings: JobSettings) -> Output:
    """The sink of the rows; its topic is made if it is not there."""
    topic = dead_letter_topic_of(letters.table) or ""
    source = SourceSettings.of(letters.table, settings)
    log = open_log(source.nameserver, timeout_s=SEND_TIMEOUT_S, access=source.access)
    try:
        log.ensure_topic(topic)
    finally:
        log.close()
    maker = MessageMaker(topic, letters.node.schema, ((PROPERTIES, "properties"),))
    sink = TopicSink(topic, maker, source.nameserver, timeout_s=SEND_TIMEOUT_S, access=source.access)
    return Output(letters.node, sink)


MAX_PROPERTY: Final = 2_000
"""Characters of a traceback that a dead letter carries in a property, the innermost ones."""

_log = logging.getLogger(__name__)


def has_dead_letter_topic(settings: JobSettings, table: Table) -> bool:
    """Whether rows that come from the table have a topic to go to."""
    if not connector_of(table.connector).dead_letters:
        return False
    return SourceSettings.of(table, settings).dead_letter_topic is not None


@dataclass
class FailedCalls:
    """Empties the spool. `tables` are those of the stages whose rows are dead letters, by the stage's name.

    `latest` is the call that failed last.
    """

    spool: Spool[SpooledCall]
    tables: Mapping[str, Table]
    settings: JobSettings
    latest: FailedCall | None = None
    _told: set[str] = field(default_factory=set)

    def deliver(self) -> Counter[str]:
        """How many calls failed, by function; their rows are in the topics when this returns. A replay sends again."""
        calls = list(self.spool.take())
        for stage in sorted({one.stage for one in calls if one.row}):
            self.send(self.tables[stage], [one for one in calls if one.stage == stage])
        for one in calls:
            self._tell(one.call)
        return Counter(one.call.function for one in calls)

    def cause(self) -> JobError | None:
        """Why a query ended, if it was a call; with the user's traceback and the arguments."""
        calls = [one for one in self.spool.take() if one.ends or self.settings.call_error == "fail"]
        if not calls:
            return None
        self.latest = calls[0].call
        words = f"A user's function failed: {self.latest}"
        remedy = "SET 'millstream.user-function.on-error' (on_error in the SDK) says what else it may do."
        return JobError("JOB_FAILED", words, remedy=remedy)

    def _tell(self, call: FailedCall) -> None:
        """Write each function's first failure to the log: the others are counted."""
        self.latest = call
        if call.function not in self._told:
            self._told.add(call.function)
            _log.warning("A call of a user's function failed; further ones of it are only counted. %s", call)

    def send(self, table: Table, calls: Sequence[SpooledCall]) -> None:
        """Send the rows of the calls to the dead-letter topic of their table."""
        settings = SourceSettings.of(table, self.settings)
        topic = settings.dead_letter_topic
        if topic is None:
            return
        log = open_log(settings.nameserver, timeout_s=SEND_TIMEOUT_S, access=settings.access)
        try:
            log.ensure_topic(topic)
            log.send([_letter(one, settings.topic, topic) for one in calls])
        finally:
            log.close()


def _letter(one: SpooledCall, source_topic: str, topic: str) -> Message:
    call = one.call
    properties = {
        "reason": _printable(f"{call.function}: {call.reason}"),
        "source_topic": source_topic,
        "function": call.function,
        "arguments": _printable(call.arguments),
        "traceback": _printable(call.trace[-MAX_PROPERTY:]),
    }
    return Message(topic, one.row, user_properties={name: value for name, value in properties.items() if value})


def _printable(text: str) -> str:
    """The text as a message's property takes it: lines are parted by a bar."""
    return "".join(one if one.isprintable() else " | " if one == "\n" else " " for one in text)
