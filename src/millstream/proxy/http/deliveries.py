"""Receiving messages over HTTP for consumer groups, and settlement of deliveries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import msgspec
import orjson

from millstream.model.errors import MillstreamError, Refused
from millstream.model.handles import ReceiptHandle
from millstream.model.operations import PoppedMessage
from millstream.protocol.cloud_events import BATCH_TYPE, encode_event, event_attributes
from millstream.proxy.budget import Answers, Share
from millstream.proxy.http.answer import JSON_TYPE, HttpAnswer, Send, json_answer
from millstream.proxy.http.problems import problem_answer, status_of
from millstream.proxy.http.request import HttpRequest
from millstream.proxy.http.service import HttpService
from millstream.proxy.http.settlement import DEFAULT_INVISIBLE_MS, DeliveryPlace, check_handles, settle
from millstream.proxy.processor import MAX_RECEIVE_MESSAGES, ReceiveRequest
from millstream.proxy.stored_body import body_of, is_packed, unpack
from millstream.proxy.throttle import Caller
from millstream.transport.heavy_work import HEAVY_BYTES, HEAVY_WORK

__all__ = [
    "ATTEMPT_EXTENSION",
    "HANDLE_EXTENSION",
    "MAX_WAIT_MS",
    "DeliveryResource",
    "encode_in_time",
    "encode_messages",
]

MAX_WAIT_MS: Final = 20_000
"""Milliseconds that a receive waits for messages at most; longer wishes are cut."""

HANDLE_EXTENSION: Final = "rmqhandle"
"""The extension of an event in a batch that names its delivery."""

ATTEMPT_EXTENSION: Final = "rmqattempt"
"""The extension of an event in a batch that counts its deliveries."""

_ANYTHING: Final = ("*/*", "application/*")


class _Handles(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request that settles deliveries."""

    handles: list[str]


class DeliveryResource:
    """Takes the requests below /v1/groups/GROUP/topics/TOPIC."""

    def __init__(self, service: HttpService) -> None:
        self._service = service
        self._processor = service.processor
        self._gate = service.gate
        self._clock = service.clock
        self._traffic = service.traffic
        self._unwritten = service.unwritten

    async def receive(self, request: HttpRequest, group: str, topic: str) -> None:
        """Answer with messages that nobody else of the group gets for a time; none where nothing came in time.

        If the client goes before it has its answer, what was taken for it goes back.
        """
        place = self._enter(request, "receive", group, topic)
        is_batch = _wants_batch(request.headers.get("accept", ""))
        wish = self._wish(request, place)
        request.query.finish()
        await request.body(self._service)
        throttle = self._processor.throttle
        if throttle.has_rules:
            throttle.admit(Caller(wish.client_id, wish.group, request.user), 0, self._clock.monotonic_s())
        self._processor.note_alive(wish.client_id, request.user)
        await self._processor.group(wish.group)
        gone = asyncio.ensure_future(request.receive())
        self._traffic.sessions += 1
        try:
            popped = await self._receive_unless(gone, wish)
            if popped is not None:
                await self._hand_over(request.send, wish, popped, gone, is_batch=is_batch)
        finally:
            self._traffic.sessions -= 1
            gone.cancel()

    async def ack(self, request: HttpRequest, group: str, topic: str) -> HttpAnswer:
        """Acknowledge deliveries."""
        return await self._settle(request, "ack", group, topic)

    async def nack(self, request: HttpRequest, group: str, topic: str) -> HttpAnswer:
        """Give deliveries back, to be delivered again after `delay`, at once without one."""
        return await self._settle(request, "nack", group, topic, time="delay")

    async def extend(self, request: HttpRequest, group: str, topic: str) -> HttpAnswer:
        """Keep deliveries for `invisible` from now on; each has a new handle."""
        return await self._settle(request, "extend", group, topic, time="invisible")

    async def dead_letter(self, request: HttpRequest, group: str, topic: str) -> HttpAnswer:
        """Move deliveries to the group's dead-letter topic."""
        return await self._settle(request, "dead-letter", group, topic)

    # inside

    def _enter(self, request: HttpRequest, action: str, group: str, topic: str) -> DeliveryPlace:
        place = DeliveryPlace(request.space.whole(group), request.space.whole(topic))
        self._gate.allow(request, action, place.wishes)
        return place

    def _wish(self, request: HttpRequest, place: DeliveryPlace) -> ReceiveRequest:
        query = request.query
        return ReceiveRequest(
            client_id=request.client_id,
            group=place.group,
            topic=place.topic,
            broker_name="",
            invisible_ms=query.duration_ms("invisible", DEFAULT_INVISIBLE_MS),
            max_messages=query.number("max", 1, 1, MAX_RECEIVE_MESSAGES),
            filter=query.message_filter(),
            wait_ms=min(query.duration_ms("wait") or 0, MAX_WAIT_MS),
        )

    async def _receive_unless(self, gone: asyncio.Future[Any], wish: ReceiveRequest) -> list[PoppedMessage] | None:
        """What is received, or None, and nothing is taken, where the client goes before."""
        task = asyncio.ensure_future(self._unwritten.receive(self._processor, wish))
        try:
            await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
        except BaseException:
            # This request has its end; its receive may have ended in the same turn, or take notice of it later.
            task.cancel()
            task.add_done_callback(lambda ended: self._give_back_of(ended, wish))
            raise
        return None if task.cancelled() else task.result()

    def _give_back_of(self, ended: asyncio.Future[list[PoppedMessage]], wish: ReceiveRequest) -> None:
        if not ended.cancelled() and ended.exception() is None and ended.result():
            self._unwritten.remove(ended.result())
            self._processor.give_back(wish, ended.result(), uncounted=True)

    async def _hand_over(
        self,
        send: Send,
        wish: ReceiveRequest,
        popped: list[PoppedMessage],
        gone: asyncio.Future[Any],
        *,
        is_batch: bool,
    ) -> None:
        share, answer = None, HttpAnswer(HTTPStatus.OK, content_type=BATCH_TYPE.encode() if is_batch else JSON_TYPE)
        handles: list[ReceiptHandle] = []
        try:
            try:
                answers, encode = self._processor.answers, partial(_encode, is_batch=is_batch)
                share = answers.begin(wish.client_id, popped) if popped else None
                answer.body = await encode_in_time(popped, answers, share, encode)
            finally:
                self._unwritten.remove(popped)
            handles = [one.handle for one in popped]
            # From here on the answer is what is there of them.
            popped.clear()
            await answer.write_through(send)
            self._traffic.messages_out += len(handles)
            if not gone.done() or not _is_disconnect(gone):
                handles = []
        finally:
            if share is not None:
                self._processor.answers.end(share)
            if popped:
                self._processor.give_back(wish, popped, uncounted=True)
            if handles:
                self._processor.release(wish.group, wish.topic, handles)

    async def _settle(
        self, request: HttpRequest, action: str, group: str, topic: str, *, time: str | None = None
    ) -> HttpAnswer:
        """Settle the handles of the request; `time` is the parameter that says for how long. An answer 409 or 422 says
        of each what became of it."""
        place = self._enter(request, action, group, topic)
        time_ms = request.query.duration_ms(time) if time is not None else None
        request.query.finish()
        handles = _handles(await request.body(self._service))
        settlement = await settle(self._processor, place, action, handles, time_ms)
        if settlement.failure is None:
            return json_answer({"results": settlement.results})
        status = _status(settlement.failure, handles)
        return problem_answer(settlement.failure, {"results": settlement.results}, status=status)


def _status(failure: MillstreamError, handles: Sequence[str]) -> HTTPStatus:
    """409 for a delivery that is over, 422 for what never was a handle."""
    if failure.name != "INVALID_RECEIPT_HANDLE":
        return status_of(failure)
    try:
        for handle in handles:
            ReceiptHandle.decode(handle)
    except Refused:
        return HTTPStatus.UNPROCESSABLE_ENTITY
    return HTTPStatus.CONFLICT


def _handles(body: bytes) -> list[str]:
    try:
        handles = msgspec.json.decode(body, type=_Handles).handles
    except msgspec.MsgspecError as error:
        raise Refused("HTTP_REQUEST", f'The body is not of the form {{"handles": ["..."]}}: {error}.') from None
    check_handles(handles)
    return handles


def _wants_batch(accept: str) -> bool:
    kinds = [part.partition(";")[0].strip().lower() for part in accept.split(",") if part.strip()]
    if not kinds or "application/json" in kinds:
        return False
    if BATCH_TYPE in kinds:
        return True
    if any(kind in _ANYTHING for kind in kinds):
        return False
    words = f"A receive answers as application/json or {BATCH_TYPE}, not as {accept[:200]!r}."
    raise Refused("HTTP_ACCEPT", words)


def _encode(popped: Sequence[PoppedMessage], *, is_batch: bool) -> bytes:
    """The messages as a batch of events with their handles as extensions, or as JSON with the handles beside them."""
    if not is_batch:
        return encode_messages(popped)
    events = [
        encode_event(
            event_attributes(one.message),
            body_of(one.message),
            {HANDLE_EXTENSION: one.handle.encode(), ATTEMPT_EXTENSION: one.delivery_attempt},
        )
        for one in popped
    ]
    return b"[" + b",".join(events) + b"]"


async def encode_in_time(
    popped: Sequence[PoppedMessage],
    answers: Answers,
    share: Share | None,
    encode: Callable[[Sequence[PoppedMessage]], bytes],
) -> bytes:
    """What `encode` makes of messages with plain bodies, in a thread where that takes long. TOO_MANY_REQUESTS where
    they are too large together."""
    if share is not None and any(is_packed(one.message) for one in popped):
        plain = []
        for one in popped:
            message = await unpack(one.message)
            answers.grow(share, len(message.body) - len(one.message.body))
            plain.append(replace(one, message=message))
        popped = plain
    size_bytes = sum([len(one.message.body) for one in popped])
    if size_bytes <= HEAVY_BYTES:
        return encode(popped)
    return await HEAVY_WORK.run(size_bytes, partial(encode, popped))


def encode_messages(popped: Sequence[PoppedMessage]) -> bytes:
    """The messages as JSON, with their handles beside the events."""
    messages = [
        {
            "handle": one.handle.encode(),
            "attempt": one.delivery_attempt,
            "queue": one.message.queue_id,
            "offset": one.message.queue_offset,
            "event": orjson.Fragment(encode_event(event_attributes(one.message), body_of(one.message))),
        }
        for one in popped
    ]
    return orjson.dumps({"messages": messages})


def _is_disconnect(gone: asyncio.Future[Any]) -> bool:
    return not gone.cancelled() and gone.exception() is None and gone.result()["type"] == "http.disconnect"
