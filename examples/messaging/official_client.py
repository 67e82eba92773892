"""Sends and receives with the official RocketMQ Python client, unmodified.

    pip install rocketmq-python-client==5.1.2
    python examples/messaging/official_client.py [GRPC_ADDRESS] [TOPIC]

The topic must exist: millstream topic create hello
"""

from __future__ import annotations

import sys

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer

MESSAGES = 5
RECEIVES_AT_MOST = 20
INVISIBLE_S = 15


def main(address: str, topic: str) -> int:
    configuration = ClientConfiguration(address, Credentials())
    producer = Producer(configuration, (topic,))
    producer.startup()
    for number in range(MESSAGES):
        message = Message()
        message.topic = topic
        message.body = f"message {number}".encode()
        message.tag = "example"
        print("sent", producer.send(message).message_id)
    producer.shutdown()

    consumer = SimpleConsumer(configuration, "example-group", {topic: FilterExpression("example")})
    consumer.startup()
    received: set[str] = set()
    for _ in range(RECEIVES_AT_MOST):
        for message in consumer.receive(32, INVISIBLE_S):
            print("received", message.message_id, message.body.decode(), "attempt", message.delivery_attempt)
            consumer.ack(message)
            received.add(message.message_id)
        if len(received) >= MESSAGES:
            break
    consumer.shutdown()
    return 0 if len(received) >= MESSAGES else 1


if __name__ == "__main__":
    words = [*sys.argv[1:], *("127.0.0.1:8081", "hello")[len(sys.argv) - 1 :]]
    raise SystemExit(main(words[0], words[1]))
