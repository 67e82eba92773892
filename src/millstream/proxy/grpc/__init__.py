"""RocketMQ 5's gRPC messaging service over the proxy's processor."""
