"""AMQP 0-9-1 at a proxy: exchanges are topics, queues are light queues with a group, messages are ordinary records."""
