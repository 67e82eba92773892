"""Obeys the lines of ../README.md with the official Python client."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    LitePushConsumer,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

_RESOLUTIONS = {
    "commit": TransactionResolution.COMMIT,
    "rollback": TransactionResolution.ROLLBACK,
    "unknown": TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED,
}
_CODE = re.compile(r"code[=: ]+(\d{5})")

Order = dict[str, Any]
_clients: dict[str, Any] = {}
_received: dict[str, Any] = {}
_writing = threading.Lock()
_output = sys.stdout


def write(value: Order) -> None:
    with _writing:
        _output.write(json.dumps(value) + "\n")
        _output.flush()


def shown(message: Any) -> Order:
    return {
        "id": message.message_id,
        "topic": message.topic,
        "body": message.body.decode(),
        "tag": message.tag or None,
        "keys": list(message.keys),
        "group": message.message_group or None,
        "properties": dict(message.properties),
        "attempt": message.delivery_attempt,
        "deliver_at_ms": message.delivery_timestamp or None,
        "priority": message.priority,
        "lite_topic": message.lite_topic or None,
    }


class Listener(MessageListener):
    """Tells of each delivery; a body's first `fail[body]` attempts fail."""

    def __init__(self, order: Order) -> None:
        self._client, self._fail = order["client"], order.get("fail") or {}

    def consume(self, message: Any) -> ConsumeResult:
        write({"event": "message", "client": self._client, "message": shown(message)})
        failing = self._fail.get(message.body.decode(), 0)
        return ConsumeResult.FAILURE if message.delivery_attempt <= failing else ConsumeResult.SUCCESS


class Checker(TransactionChecker):
    """Tells of each check and answers what it was told."""

    def __init__(self, order: Order) -> None:
        self._client, self._resolution = order["client"], _RESOLUTIONS[order["check"]]

    def check(self, message: Any) -> Any:
        write({"event": "check", "client": self._client, "message": shown(message)})
        return self._resolution


def configuration(order: Order) -> ClientConfiguration:
    credentials = Credentials(order.get("access_key") or "", order.get("secret_key") or "")
    return ClientConfiguration(order["endpoint"], credentials, order.get("namespace") or "")


def subscription(order: Order) -> dict[str, FilterExpression]:
    if order.get("sql"):
        return {order["topic"]: FilterExpression(order["sql"], FilterType.SQL)}
    return {order["topic"]: FilterExpression(order.get("filter") or "*")}


def opened(order: Order, client: Any) -> Order:
    client.startup()
    _clients[order["client"]] = client
    return {}


def open_producer(order: Order) -> Order:
    checker = Checker(order) if order.get("check") else None
    return opened(order, Producer(configuration(order), order["topics"], checker=checker))


def open_push(order: Order) -> Order:
    return opened(order, PushConsumer(configuration(order), order["group"], Listener(order), subscription(order)))


def open_lite_push(order: Order) -> Order:
    consumer = LitePushConsumer(configuration(order), order["group"], order["topic"], Listener(order))
    opened(order, consumer)
    for name in order["lite_topics"]:
        consumer.subscribe_lite(name)
    return {}


def open_simple(order: Order) -> Order:
    consumer = SimpleConsumer(
        configuration(order), order["group"], subscription(order), await_duration=order["await_s"]
    )
    return opened(order, consumer)


def outgoing(wanted: Order) -> Message:
    message = Message()
    message.topic, message.body = wanted["topic"], wanted["body"].encode()
    names = {"tag": "tag", "group": "message_group", "priority": "priority", "lite_topic": "lite_topic"}
    for name, attribute in names.items():
        if name in wanted:
            setattr(message, attribute, wanted[name])
    if "keys" in wanted:
        # The setter takes any number of keys, which an assignment cannot pass.
        Message.keys.fset(message, *wanted["keys"])
    if "deliver_at_ms" in wanted:
        message.delivery_timestamp = wanted["deliver_at_ms"] // 1000
    for name, value in wanted.get("properties", {}).items():
        message.add_property(name, value)
    return message


def send(order: Order) -> Order:
    producer, ending = _clients[order["client"]], order.get("transaction")
    if not ending:
        receipt = producer.send(outgoing(order["message"]))
        return {"id": receipt.message_id, "recall_handle": receipt.recall_handle or None}
    transaction = producer.begin_transaction()
    receipt = producer.send(outgoing(order["message"]), transaction)
    if ending == "commit":
        transaction.commit()
    elif ending == "rollback":
        transaction.rollback()
    return {"id": receipt.message_id, "recall_handle": None}


def recall(order: Order) -> Order:
    receipt = _clients[order["client"]].recall_message(order["topic"], order["handle"])
    return {"id": receipt if isinstance(receipt, str) else receipt.message_id}


def receive(order: Order) -> Order:
    messages = _clients[order["client"]].receive(order["max"], order["invisible_s"])
    _received.update((message.message_id, message) for message in messages)
    return {"messages": [shown(message) for message in messages]}


def ack(order: Order) -> Order:
    _clients[order["client"]].ack(_received[order["id_of_message"]])
    return {}


def change_invisible(order: Order) -> Order:
    message = _received[order["id_of_message"]]
    _clients[order["client"]].change_invisible_duration(message, order["invisible_s"])
    return {}


def close(order: Order) -> Order:
    _clients.pop(order["client"]).shutdown()
    return {}


OPS: dict[str, Callable[[Order], Order]] = {
    call.__name__: call
    for call in (
        open_producer, open_push, open_lite_push, open_simple, send, recall, receive, ack, change_invisible, close
    )
}  # fmt: skip


def obey(order: Order) -> None:
    try:
        write({"id": order["id"], "result": OPS[order["op"]](order)})
    except Exception as error:  # noqa: BLE001 - whatever the client raises is the answer
        code = getattr(error, "code", None)
        found = _CODE.search(str(error))
        number = code if isinstance(code, int) else int(found[1]) if found else None
        write({"id": order["id"], "error": {"code": number, "text": f"{type(error).__name__}: {error}"}})


def main() -> None:
    """Obey until standard input ends."""
    with ThreadPoolExecutor(16) as workers:
        for line in sys.stdin:
            workers.submit(obey, json.loads(line))


if __name__ == "__main__":
    main()
