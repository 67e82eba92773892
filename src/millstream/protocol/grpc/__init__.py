"""RocketMQ 5's gRPC messaging service as data: the proto file, its message classes and its methods."""
