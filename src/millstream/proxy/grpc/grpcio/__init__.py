"""The gRPC port on grpc.aio, as releases before had it: for one release more, behind a setting."""
