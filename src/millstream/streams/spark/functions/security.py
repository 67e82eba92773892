"""Addresses, log lines and headers, in a Python worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import Column

from millstream.streams.functions.text.grok import grok
from millstream.streams.functions.text.log_lines import key_values, parse_kv, parse_log
from millstream.streams.functions.text.networks import (
    in_networks,
    in_range,
    ip_of_number,
    is_ipv4,
    is_ipv6,
    is_private,
    network_of,
    number_of_ip,
    number_of_short_ip,
)
from millstream.streams.functions.text.strings import entropy
from millstream.streams.functions.text.user_agents import user_agent_part
from millstream.streams.plan.expressions import Call
from millstream.streams.spark.functions.arrow import by_row
from millstream.streams.spark.functions.builder import Builder

__all__ = ["SECURITY"]

_TEXTS = "map<string,string>"


def _rows(function: Callable[..., Any], result: str) -> Builder:
    return lambda _call, columns: by_row(function, result, *columns)


def _key_values(_call: Call, columns: Sequence[Column]) -> Column:
    return by_row(key_values if len(columns) == 1 else parse_kv, _TEXTS, *columns)


SECURITY: dict[str, Builder] = {
    "CIDR_MATCH": _rows(in_networks, "boolean"),
    "IP_IN_RANGE": _rows(in_range, "boolean"),
    "IS_PRIVATE_IP": _rows(is_private, "boolean"),
    "IS_IPV4": _rows(is_ipv4, "boolean"),
    "IS_IPV6": _rows(is_ipv6, "boolean"),
    "IP_NETWORK": _rows(network_of, "string"),
    "IP_TO_NUMBER": _rows(number_of_ip, "bigint"),
    "NUMBER_TO_IP": _rows(ip_of_number, "string"),
    "INET_ATON": _rows(number_of_short_ip, "bigint"),
    "INET_NTOA": _rows(ip_of_number, "string"),
    "GROK": _rows(grok, _TEXTS),
    "PARSE_KV": _key_values,
    "PARSE_LOG": _rows(parse_log, _TEXTS),
    "USER_AGENT": _rows(user_agent_part, "string"),
    "ENTROPY": _rows(entropy, "double"),
}
