"""Fields by which Millstream's own clients and proxies ask a broker for more than RocketMQ's brokers do.

Without them a broker answers as RocketMQ's: it takes messages of any type into a topic, which there only the proxy
checks (`typed`), and gives few messages for one pull, however many are asked for (`uncapped`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["TYPED", "UNCAPPED", "is_typed", "is_uncapped"]

TYPED: Final = {"typed": "true"}
UNCAPPED: Final = {"uncapped": "true"}


def is_typed(ext: Mapping[str, str]) -> bool:
    """Whether messages of another type than their topic's are to be refused."""
    return ext.get("typed") == "true"


def is_uncapped(ext: Mapping[str, str]) -> bool:
    """Whether a pull may be answered by as many messages as it asks for."""
    return ext.get("uncapped") == "true"
