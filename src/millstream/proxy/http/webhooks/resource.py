"""The HTTP resource /v1/subscriptions."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from millstream.model.errors import Refused
from millstream.proxy.http.answer import HttpAnswer, json_answer
from millstream.proxy.http.request import HttpRequest
from millstream.proxy.http.service import HttpService
from millstream.proxy.http.webhooks.book import SubscriptionBook
from millstream.proxy.http.webhooks.delivery import WebhookDelivery
from millstream.proxy.http.webhooks.sink import Sink
from millstream.proxy.http.webhooks.subscription import WebhookSubscription, read_subscription
from millstream.security.policy import RequiredAccess

__all__ = ["SubscriptionResource"]


class SubscriptionResource:
    """Makes, shows, changes and deletes subscriptions. Users see their own ones, super users all."""

    def __init__(self, service: HttpService, book: SubscriptionBook, sink: Sink) -> None:
        self._service = service
        self._book = book
        self._sink = sink

    async def create(self, request: HttpRequest) -> HttpAnswer:
        """Store a subscription once its sink has said that it wants events."""
        wanted = await self._read(request, uuid.uuid4().hex)
        await self._book.put(wanted)
        headers = ((b"location", f"/v1/subscriptions/{wanted.id}".encode()),)
        return json_answer(self._describe(self._book.find(wanted.id)), HTTPStatus.CREATED, headers)

    async def replace(self, request: HttpRequest, key: str) -> HttpAnswer:
        """Put another subscription in the place of one; its sink is asked again."""
        self._find(request, key)
        wanted = await self._read(request, key)
        await self._book.put(wanted)
        return json_answer(self._describe(self._book.find(key)))

    async def show(self, request: HttpRequest, key: str) -> HttpAnswer:
        """One subscription."""
        request.query.finish()
        return json_answer(self._describe(self._find(request, key)))

    async def list_all(self, request: HttpRequest) -> HttpAnswer:
        """All that the user may see, in the order of their ids."""
        request.query.finish()
        found = [one for one in self._book.all() if self._is_visible(request, one.wanted)]
        found.sort(key=lambda one: one.wanted.id)
        return json_answer([self._describe(one) for one in found])

    async def delete(self, request: HttpRequest, key: str) -> HttpAnswer:
        """Have a subscription no more."""
        request.query.finish()
        self._find(request, key)
        await self._book.delete(key)
        return HttpAnswer(HTTPStatus.NO_CONTENT)

    async def _read(self, request: HttpRequest, key: str) -> WebhookSubscription:
        request.query.finish()
        wanted = read_subscription(await request.body(self._service), id=key, owner=request.user)
        topic, group = request.space.whole(wanted.config.topic), request.space.whole(wanted.group)
        wanted = msgspec.structs.replace(
            wanted, config=msgspec.structs.replace(wanted.config, topic=topic, group=group)
        )
        wishes = (RequiredAccess.consume(group), RequiredAccess.read(topic))
        self._service.gate.allow(request, "subscribe", wishes)
        await self._service.processor.route(topic)
        return msgspec.structs.replace(wanted, rate=await self._sink.shake_hands(wanted))

    def _find(self, request: HttpRequest, key: str) -> WebhookDelivery:
        found = self._book.find(key)
        if not self._is_visible(request, found.wanted):
            raise Refused("SUBSCRIPTION_NOT_FOUND", f"There is no subscription {key[:80]!r}.")
        return found

    def _is_visible(self, request: HttpRequest, wanted: WebhookSubscription) -> bool:
        return self._service.gate.is_open or wanted.owner == request.user or self._service.gate.is_super(request.user)

    def _describe(self, one: WebhookDelivery) -> Mapping[str, Any]:
        shown: dict[str, Any] = msgspec.to_builtins(one.wanted)
        status = one.status
        shown["status"] = {"posted": status.posted, "failed": status.failed, "lastError": status.last_error}
        return shown
