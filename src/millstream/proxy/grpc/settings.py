"""The settings that a client gets back: its own, with what the server decides written over."""

from __future__ import annotations

from millstream.model.errors import ConsumeRefused, MessageRefused
from millstream.model.group import GroupConfig
from millstream.model.lite import MAX_LITE_SUBSCRIPTIONS, MAX_LITE_TOPIC_CHARACTERS
from millstream.model.message import MAX_BODY_BYTES
from millstream.protocol.grpc import messages as m
from millstream.proxy.clients import MAX_NAMES_PER_CLIENT
from millstream.proxy.processor import MAX_RECEIVE_MESSAGES

__all__ = ["check_role", "consumer_settings", "producer_settings"]

_PRODUCER_ATTEMPTS = 3
_PRODUCER_INITIAL_MS = 10
_PRODUCER_LONGEST_MS = 1000
_PRODUCER_MULTIPLIER = 2.0
_LONG_POLLING_S = 20
_LITE_CONSUMERS = (m.LITE_PUSH_CONSUMER, m.LITE_SIMPLE_CONSUMER)


def check_role(client_id: str, asked: m.Settings) -> None:
    """Refuse settings that name neither a producer nor a consumer, or too many topics."""
    named = len(asked.publishing.topics) + len(asked.subscription.subscriptions)
    if named > MAX_NAMES_PER_CLIENT:
        raise MessageRefused(
            "REQUEST_TOO_LARGE", f"The settings name {named} topics; the limit is {MAX_NAMES_PER_CLIENT}."
        )
    if asked.WhichOneof("pub_sub") is None:
        raise ConsumeRefused(
            "UNSUPPORTED_CLIENT_TYPE", f"The settings of {client_id} have no publishing or subscription."
        )


def producer_settings(asked: m.Settings) -> m.Settings:
    """For a producer. The backoff must be exponential: Java's and Node's clients take no other."""
    settings = _copy(asked)
    settings.publishing.max_body_size = MAX_BODY_BYTES
    settings.publishing.validate_message_type = True
    policy = settings.backoff_policy
    policy.max_attempts = _PRODUCER_ATTEMPTS
    policy.exponential_backoff.initial.FromMilliseconds(_PRODUCER_INITIAL_MS)
    policy.exponential_backoff.max.FromMilliseconds(_PRODUCER_LONGEST_MS)
    policy.exponential_backoff.multiplier = _PRODUCER_MULTIPLIER
    return settings


def consumer_settings(asked: m.Settings, group: GroupConfig) -> m.Settings:
    """For a consumer of `group`. Every field is set: clients take 0 for what is missing, and poll without pause."""
    settings = _copy(asked)
    settings.subscription.fifo = group.fifo
    settings.subscription.receive_batch_size = MAX_RECEIVE_MESSAGES
    settings.subscription.long_polling_timeout.FromSeconds(_LONG_POLLING_S)
    if settings.client_type in _LITE_CONSUMERS:
        settings.subscription.lite_subscription_quota = MAX_LITE_SUBSCRIPTIONS
        settings.subscription.max_lite_topic_size = MAX_LITE_TOPIC_CHARACTERS
    policy = settings.backoff_policy
    policy.max_attempts = group.max_attempts
    curve = group.exponential
    if curve is None:
        for step_s in group.backoff_s:
            policy.customized_backoff.next.add().FromSeconds(step_s)
    else:
        policy.exponential_backoff.initial.FromMilliseconds(curve.initial_ms)
        policy.exponential_backoff.max.FromMilliseconds(curve.longest_ms)
        policy.exponential_backoff.multiplier = curve.multiplier
    return settings


def _copy(asked: m.Settings) -> m.Settings:
    settings = m.Settings()
    settings.CopyFrom(asked)
    settings.ClearField("backoff_policy")
    settings.metric.on = False
    return settings
