"""gRPC's own interop test service, over the port's transport alone, and the test clients of grpc-go and grpc-java."""
