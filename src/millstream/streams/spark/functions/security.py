"""Digests and base64; addresses, log lines and headers in a Python worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

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
from millstream.streams.functions.text.strings import entropy, hash_code
from millstream.streams.functions.text.user_agents import user_agent_part
from millstream.streams.plan.expressions import Call
from millstream.streams.spark.functions.builder import Builder, by_row

__all__ = ["DIGESTS", "SECURITY"]


_SHA2_BITS = (224, 256, 384, 512)


def _sha2(bits: int) -> Builder:
    return lambda _call, columns: F.sha2(columns[0].cast("binary"), bits)


def _sha2_of_bits(_call: Call, columns: Sequence[Column]) -> Column:
    text, bits = columns[0].cast("binary"), columns[1]
    found = F.lit(None).cast("string")
    for known in _SHA2_BITS:
        found = F.when(bits == known, F.sha2(text, known)).otherwise(found)
    return found


def _to_base64(_call: Call, columns: Sequence[Column]) -> Column:
    return F.base64(columns[0].cast("binary"))


def _from_base64(_call: Call, columns: Sequence[Column]) -> Column:
    return F.make_valid_utf8(F.try_to_binary(columns[0], F.lit("base64")).cast("string"))


DIGESTS: dict[str, Builder] = {
    "MD5": lambda _call, columns: F.md5(columns[0].cast("binary")),
    "SHA1": lambda _call, columns: F.sha1(columns[0].cast("binary")),
    **{f"SHA{bits}": _sha2(bits) for bits in _SHA2_BITS},
    "SHA2": _sha2_of_bits,
    "TO_BASE64": _to_base64,
    "FROM_BASE64": _from_base64,
    "HASH_CODE": lambda _call, columns: by_row(hash_code, "int", columns[0].cast("string")),
}


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
