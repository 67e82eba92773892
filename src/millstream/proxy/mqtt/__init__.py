"""The MQTT port of a proxy: sessions of MQTT 3.1.1 and 5.0 clients over the processor and the brokers behind it."""
