"""AMQP 0-9-1 with RabbitMQ's extensions, without I/O: frames, methods, content and a connection's state."""
