"""Millstream: a RocketMQ-5-compatible messaging system and a stream engine on Apache Spark."""

from millstream.hot_modules import prefer_sources, wants_sources

__version__ = "0.1.0"
__all__ = ["__version__"]

if wants_sources():
    prefer_sources()
