"""MQTT 3.1.1 and 5.0 without I/O: packets, their bytes, and what a session knows of packets under way."""
