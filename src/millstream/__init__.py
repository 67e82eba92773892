"""Millstream: a RocketMQ-5-compatible messaging system and a stream engine on Apache Spark."""

__version__ = "0.1.0"
__all__ = ["__version__"]
