"""HTTP/2 without I/O, for a server: frames, header compression, and the state of a connection."""
