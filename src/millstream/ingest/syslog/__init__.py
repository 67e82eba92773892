"""Syslog over UDP, TCP and TLS: RFC 5424 and RFC 3164, framed by RFC 6587."""
