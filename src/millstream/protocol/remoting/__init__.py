"""RocketMQ's remoting protocol, sans-io: frames, commands, codes and bodies. Nothing here opens a socket."""
