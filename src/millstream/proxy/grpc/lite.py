"""SyncLiteSubscription: which lite topics a client reads."""

from __future__ import annotations

from millstream.model.errors import ConsumeRefused
from millstream.model.lite import LiteAction, LiteStart, LiteStartKind, LiteSync
from millstream.protocol.grpc import messages as m
from millstream.proxy.grpc.call import Call
from millstream.proxy.grpc.status import ok
from millstream.proxy.processor import Processor

__all__ = ["LiteHandlers"]

_POLICIES = {
    m.OffsetOption.LAST: LiteStartKind.LAST,
    m.OffsetOption.MIN: LiteStartKind.MIN,
    m.OffsetOption.MAX: LiteStartKind.MAX,
}
_ACTIONS = {action.value: action for action in LiteAction}


class LiteHandlers:
    """Subscriptions of lite consumers: each change at once, and all of them every 30 s."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    async def sync_lite_subscription(
        self, call: Call, request: m.SyncLiteSubscriptionRequest
    ) -> m.SyncLiteSubscriptionResponse:
        """The subscriptions are as the client says."""
        action = _ACTIONS.get(request.action)
        if action is None:
            raise ConsumeRefused("UNSUPPORTED_FEATURE", f"The action {request.action} is unknown.")
        await self._processor.sync_lite_subscription(
            LiteSync(
                client_id=call.client_id,
                group=request.group.name,
                topic=request.topic.name,
                action=action,
                lite_topics=tuple(request.lite_topic_set),
                start=_start(request.offset_option),
            )
        )
        return m.SyncLiteSubscriptionResponse(status=ok())


def _start(option: m.OffsetOption) -> LiteStart:
    kind = option.WhichOneof("offset_type")
    if kind == "offset":
        return LiteStart(LiteStartKind.OFFSET, option.offset)
    if kind == "tail_n":
        return LiteStart(LiteStartKind.TAIL, option.tail_n)
    if kind == "timestamp":
        return LiteStart(LiteStartKind.TIME, option.timestamp)
    return LiteStart(_POLICIES.get(option.policy, LiteStartKind.LAST))
