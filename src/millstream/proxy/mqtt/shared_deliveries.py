"""Messages of QoS 2 of shared subscriptions stay with the member that they were sent to, over its connections.

When the member goes they are noted in its session, each by its place in the light queue of the subscription, and
acknowledged there, so that nobody else gets them [MQTT-4.8.2-4] [MQTT-4.8.2-5]. If its proxy is killed, their time out
of sight ends, and another member gets them.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.model.errors import NameRefused
from millstream.model.light_queue import LIGHT_QUEUE_NUMBER, light_queue
from millstream.model.operations import PullRequest
from millstream.protocol.mqtt.topics import parse_shared_filter
from millstream.protocol.record import decode_record
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.mqtt.application_message import ApplicationMessage
from millstream.proxy.mqtt.light_queue_reader import TakenMessage
from millstream.proxy.mqtt.light_routes import share_queue_name
from millstream.proxy.mqtt.records import application_message_of
from millstream.proxy.mqtt.session import MqttSession
from millstream.proxy.mqtt.session_records import StoredDelivery
from millstream.proxy.stored_body import unpack

__all__ = ["acknowledge_all", "finish_shared", "keep_shared"]


def keep_shared(session: MqttSession) -> list[TakenMessage]:
    """Note in the session what is under way, before its readers are closed; to be acknowledged once that is stored."""
    names = {one.share: name for name, one in session.subscriptions.items() if one.share is not None}
    kept: list[TakenMessage] = []
    for sent in session.shared_under_way():
        taken = sent.item
        if taken is None or taken.reader not in names:
            continue
        taken.reader.keep(taken)
        kept.append(taken)
        if not sent.is_released:
            handle = taken.handle
            session.unfinished[sent.packet_id] = StoredDelivery(
                sent.packet_id, names[taken.reader], handle.broker_name, handle.queue_offset
            )
    return kept


async def acknowledge_all(kept: Sequence[TakenMessage]) -> None:
    """Let nobody else have them; returns when the brokers know."""
    for taken in kept:
        taken.acknowledge()
    for reader in {taken.reader for taken in kept}:
        await reader.settle()


async def finish_shared(backend: BrokerBackend, session: MqttSession) -> None:
    """Send again what earlier connections left. What is not stored any more, or too large, is left out."""
    for one in list(session.unfinished.values()):
        message = await _read(backend, one)
        if one.packet_id not in session.unfinished:
            continue
        if message is None or not session.send_unfinished(message, one):
            session.window.abandon(one.packet_id)
            del session.unfinished[one.packet_id]


async def _read(backend: BrokerBackend, delivery: StoredDelivery) -> ApplicationMessage | None:
    shared = parse_shared_filter(delivery.topic_filter)
    if shared is None:
        return None
    topic = light_queue(share_queue_name(shared.group, shared.topic_filter))
    request = PullRequest(shared.group, topic, LIGHT_QUEUE_NUMBER, delivery.queue_offset, max_messages=1)
    try:
        records = (await backend.pull(delivery.broker_name, request)).records
    except NameRefused:
        return None
    return application_message_of(await unpack(decode_record(records[0]))) if records else None
