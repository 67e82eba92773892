"""The deliveries of one subscription at one proxy: receive as its group, post to its sink, settle by the answer.

Every proxy delivers for every subscription. They share the group's messages as the members of any group do, so that
none has to be chosen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.model.backoff import Backoff
from millstream.model.clock import Clock
from millstream.model.errors import ConnectionFailed, MillstreamError, Refused
from millstream.model.operations import PoppedMessage
from millstream.proxy.http.webhooks.attempt import AttemptOutcome, Verdict, decide_outcome
from millstream.proxy.http.webhooks.sink import Sink
from millstream.proxy.http.webhooks.subscription import WebhookSubscription
from millstream.proxy.processor import Processor, ReceiveRequest

__all__ = ["DELIVERY_WINDOW", "HELD_MS", "RIGHTS_INTERVAL_S", "WebhookDelivery"]

_log = logging.getLogger(__name__)

DELIVERY_WINDOW: Final = 16
"""Events of one subscription that one proxy posts at a time; one where the sink named a rate."""

HELD_MS: Final = 120_000
"""Milliseconds for which an event is hidden from others while it is posted."""

RIGHTS_INTERVAL_S: Final = 2.0
"""Seconds between two looks whether the owner of a subscription, who has lost the rights to it, has got them again."""

_WAIT_MS: Final = 20_000
_FAILED: Final = Backoff(0.5, 30.0)
"""Between two attempts to receive while the broker is away, or the topic is gone."""

_EMPTY_PAUSE_S: Final = 0.05
_MINUTE_S: Final = 60.0


@dataclass(slots=True)
class WebhookStatus:
    """How one proxy stands with a sink, for those who look."""

    posted: int = 0
    failed: int = 0
    last_error: str = ""


class WebhookDelivery:
    """Runs until it is cancelled. `may` says whether the owner still has the rights; `end` is called once the sink
    wants no more events."""

    def __init__(
        self,
        wanted: WebhookSubscription,
        processor: Processor,
        sink: Sink,
        clock: Clock,
        *,
        may: Callable[[], bool],
        end: Callable[[], Awaitable[None]],
    ) -> None:
        self.wanted = wanted
        self.status = WebhookStatus()
        self._processor = processor
        self._sink = sink
        self._clock = clock
        self._may = may
        self._end = end
        self._pause_s = 0.0

    async def run(self) -> None:
        """Deliver what comes."""
        failures = 0
        while True:
            try:
                if self._may():
                    wait_s = await self._deliver_some()
                    if wait_s is None:
                        await self._end()
                        return
                    failures = 0
                else:
                    self.status.last_error = f"The user {self.wanted.owner!r} has no rights to the topic or the group."
                    wait_s = RIGHTS_INTERVAL_S
            except MillstreamError as error:
                self._note_failure(error.message)
                wait_s = _FAILED.wait_s(failures)
                failures += 1
            # Here nothing knows the messages, not even a failure: thousands of subscriptions may wait for minutes.
            await asyncio.sleep(wait_s)

    async def _deliver_some(self) -> float | None:
        """Receive and post some events; in how many seconds the next are due, None where the sink wants no more."""
        wanted = self.wanted
        wish = ReceiveRequest(
            client_id=f"http:hook-{wanted.id}",
            group=wanted.group,
            topic=wanted.config.topic,
            broker_name="",
            invisible_ms=HELD_MS,
            max_messages=1 if wanted.rate else DELIVERY_WINDOW,
            filter=wanted.message_filter(),
            wait_ms=_WAIT_MS,
        )
        await self._processor.group(wanted.group)
        popped = await self._processor.receive(wish)
        if not popped:
            # A server that stops answers at once instead of waiting.
            return _EMPTY_PAUSE_S
        try:
            verdicts = await asyncio.gather(*(self._post(one) for one in popped))
        except asyncio.CancelledError:
            self._processor.give_back(wish, popped)
            raise
        settling = asyncio.ensure_future(self._settle(popped, verdicts))
        try:
            await asyncio.shield(settling)
        except asyncio.CancelledError:
            # What the sink took must not be posted again.
            await settling
            raise
        if any(verdict.outcome is AttemptOutcome.ENDED for verdict in verdicts):
            return None
        if self._pause_s:
            pause_s, self._pause_s = self._pause_s, 0.0
            return pause_s
        return _MINUTE_S / wanted.rate if wanted.rate else 0.0

    async def _post(self, one: PoppedMessage) -> Verdict:
        now_ms = self._clock.now_ms()
        try:
            reply = await self._sink.post(self.wanted, one.message)
        except (ConnectionFailed, Refused) as error:
            self._note_failure(error.message)
            return decide_outcome(None, None, one.delivery_attempt, now_ms)
        verdict = decide_outcome(reply.status, reply.headers.get("retry-after"), one.delivery_attempt, now_ms)
        if verdict.outcome is not AttemptOutcome.TAKEN:
            self._note_failure(f"The sink answered {reply.status}.")
        return verdict

    async def _settle(self, popped: Sequence[PoppedMessage], verdicts: Sequence[Verdict]) -> None:
        group, topic, processor = self.wanted.group, self.wanted.config.topic, self._processor
        for one, verdict in zip(popped, verdicts, strict=True):
            handle = one.handle.encode()
            try:
                if verdict.outcome is AttemptOutcome.TAKEN:
                    await processor.ack(group, topic, handle)
                    self.status.posted += 1
                elif verdict.outcome is AttemptOutcome.DEAD:
                    await processor.dead_letter(group, topic, handle)
                else:
                    is_later = verdict.outcome is not AttemptOutcome.AGAIN
                    await processor.change_invisible(group, topic, handle, verdict.wait_ms, suspend=is_later)
                    if verdict.outcome is AttemptOutcome.LATER:
                        self._pause_s = max(self._pause_s, verdict.wait_ms / 1000)
            except MillstreamError as error:
                # It comes again when its time is over.
                self._note_failure(error.message)

    def _note_failure(self, words: str) -> None:
        self.status.failed += 1
        self.status.last_error = words
        _log.debug("subscription %s: %s", self.wanted.id, words)
