"""RocketMQ 5's gRPC messaging service over the proxy's processor."""

import os

# The core of gRPC writes a line to the terminal for each client that speaks nonsense. Read when grpc is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
