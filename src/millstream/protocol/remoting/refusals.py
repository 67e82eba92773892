"""Errors on the wire: the response code of each error, and the error of each response code.

The remark carries the error's text with its number, as in `Topic a does not exist. ... [MS-2101]`, so that our client
raises the very error that the server raised; of other servers' answers the code alone decides.
"""

from __future__ import annotations

import re
from typing import Final

from millstream.model.catalogue import CATALOGUE, ErrorEntry, find_entry
from millstream.model.errors import (
    AccessRefused,
    ConnectionFailed,
    ConsumeRefused,
    MessageRefused,
    MillstreamError,
    NameRefused,
    Refused,
    StoreError,
)
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import RemotingCommand

__all__ = ["error_of", "response_code_of"]

_CODES: Final[dict[str, ResponseCode]] = {
    "TOPIC_NOT_FOUND": ResponseCode.TOPIC_NOT_EXIST,
    "TOPIC_EXISTS": ResponseCode.TOPIC_EXIST_ALREADY,
    "ILLEGAL_TOPIC": ResponseCode.INVALID_PARAMETER,
    "NOT_LEADER_FOR_QUEUE": ResponseCode.NOT_LEADER_FOR_QUEUE,
    "ILLEGAL_STATIC_TOPIC": ResponseCode.INVALID_PARAMETER,
    "STATIC_TOPIC_STATE": ResponseCode.ILLEGAL_OPERATION,
    "SEGMENT_UNREACHABLE": ResponseCode.SYSTEM_BUSY,
    "NOT_A_STATIC_TOPIC": ResponseCode.INVALID_PARAMETER,
    "QUEUE_NOT_FOUND": ResponseCode.INVALID_PARAMETER,
    "FORBIDDEN": ResponseCode.NO_PERMISSION,
    "BROKER_DRAINED": ResponseCode.NO_PERMISSION,
    "BROKER_NOT_FOUND": ResponseCode.BROKER_NOT_EXIST,
    "BROKER_NAME_TAKEN": ResponseCode.NO_PERMISSION,
    "NOT_ITS_REGISTRATION": ResponseCode.NO_PERMISSION,
    "GROUP_NOT_FOUND": ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    "ILLEGAL_GROUP": ResponseCode.MESSAGE_ILLEGAL,
    "GROUP_EXISTS": ResponseCode.INVALID_PARAMETER,
    "GROUP_DISABLED": ResponseCode.NO_PERMISSION,
    "ILLEGAL_GROUP_SETTING": ResponseCode.MESSAGE_ILLEGAL,
    "UNAUTHORIZED": ResponseCode.NO_PERMISSION,
    "ACCESS_DENIED": ResponseCode.NO_PERMISSION,
    "USER_NOT_FOUND": ResponseCode.USER_NOT_EXIST,
    "USER_EXISTS": ResponseCode.INVALID_PARAMETER,
    "POLICY_NOT_FOUND": ResponseCode.POLICY_NOT_EXIST,
    "ILLEGAL_USER": ResponseCode.INVALID_PARAMETER,
    "ILLEGAL_POLICY": ResponseCode.INVALID_PARAMETER,
    "LAST_SUPER_USER": ResponseCode.INVALID_PARAMETER,
    "USERS_NOT_KNOWN_YET": ResponseCode.SERVICE_NOT_AVAILABLE,
    "ACCESS_CONTROL_OFF": ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    "SETTING_UNKNOWN": ResponseCode.INVALID_PARAMETER,
    "SETTING_FIXED": ResponseCode.INVALID_PARAMETER,
    "ILLEGAL_SETTING": ResponseCode.INVALID_PARAMETER,
    "KEY_VALUE_NOT_FOUND": ResponseCode.QUERY_NOT_FOUND,
    "STATISTIC_UNKNOWN": ResponseCode.QUERY_NOT_FOUND,
    "TOPIC_SETTING_FIXED": ResponseCode.INVALID_PARAMETER,
    "BODY_EMPTY": ResponseCode.MESSAGE_ILLEGAL,
    "BODY_TOO_LARGE": ResponseCode.MESSAGE_ILLEGAL,
    "PROPERTIES_TOO_LARGE": ResponseCode.MESSAGE_ILLEGAL,
    "HEADER_TOO_LARGE": ResponseCode.MESSAGE_ILLEGAL,
    "ILLEGAL_TAG": ResponseCode.MESSAGE_ILLEGAL,
    "ILLEGAL_KEY": ResponseCode.MESSAGE_ILLEGAL,
    "ILLEGAL_LITE_TOPIC": ResponseCode.MESSAGE_ILLEGAL,
    "LITE_TOPIC_QUOTA_EXCEEDED": ResponseCode.SYSTEM_BUSY,
    "ILLEGAL_ROUTE": ResponseCode.INVALID_PARAMETER,
    "LIGHT_QUEUE_QUOTA_EXCEEDED": ResponseCode.SYSTEM_BUSY,
    "LIGHT_QUEUE_GROUP": ResponseCode.NO_PERMISSION,
    "TOO_MANY_LIGHT_QUEUES": ResponseCode.MESSAGE_ILLEGAL,
    "ILLEGAL_PRIORITY": ResponseCode.MESSAGE_ILLEGAL,
    "ILLEGAL_MESSAGE_GROUP": ResponseCode.MESSAGE_ILLEGAL,
    "ILLEGAL_PROPERTY": ResponseCode.MESSAGE_ILLEGAL,
    "MESSAGE_TYPE_MISMATCH": ResponseCode.MESSAGE_ILLEGAL,
    "MESSAGE_MALFORMED": ResponseCode.MESSAGE_ILLEGAL,
    "ILLEGAL_MESSAGE_ID": ResponseCode.MESSAGE_ILLEGAL,
    "ILLEGAL_DELIVERY_TIME": ResponseCode.MESSAGE_ILLEGAL,
    "ILLEGAL_RECALL_HANDLE": ResponseCode.ILLEGAL_OPERATION,
    "MESSAGE_NOT_FOUND": ResponseCode.QUERY_NOT_FOUND,
    "ILLEGAL_FILTER": ResponseCode.SUBSCRIPTION_PARSE_FAILED,
    "INVALID_RECEIPT_HANDLE": ResponseCode.INVALID_PARAMETER,
    "ILLEGAL_INVISIBLE_TIME": ResponseCode.INVALID_PARAMETER,
    "ILLEGAL_POLLING_TIME": ResponseCode.INVALID_PARAMETER,
    "ILLEGAL_OFFSET": ResponseCode.INVALID_PARAMETER,
    "OFFSET_NOT_FOUND": ResponseCode.QUERY_NOT_FOUND,
    "DEAD_LETTER_ORIGIN_UNKNOWN": ResponseCode.INVALID_PARAMETER,
    "CLIENT_ID_REQUIRED": ResponseCode.INVALID_PARAMETER,
    "TOO_MANY_REQUESTS": ResponseCode.SYSTEM_BUSY,
    "CLIENT_THROTTLED": ResponseCode.FLOW_CONTROL,
    "STORE_FAILED": ResponseCode.SERVICE_NOT_AVAILABLE,
    "DISK_FULL": ResponseCode.SERVICE_NOT_AVAILABLE,
    "FILE_NOT_OPENED": ResponseCode.SYSTEM_BUSY,
    "RECORD_BEING_MENDED": ResponseCode.SYSTEM_BUSY,
    "FLUSH_TIMEOUT": ResponseCode.FLUSH_DISK_TIMEOUT,
    "REPLICAS_TIMEOUT": ResponseCode.FLUSH_SLAVE_TIMEOUT,
    "TOO_FEW_REPLICAS": ResponseCode.SERVICE_NOT_AVAILABLE,
    "NOT_MASTER": ResponseCode.SERVICE_NOT_AVAILABLE,
    "FENCED_MASTER_EPOCH": ResponseCode.FENCED_MASTER_EPOCH,
    "FENCED_SYNC_STATE_SET_EPOCH": ResponseCode.FENCED_SYNC_STATE_SET_EPOCH,
    "INVALID_MASTER": ResponseCode.INVALID_MASTER,
    "INVALID_REPLICAS": ResponseCode.INVALID_REPLICAS,
    "MASTER_NOT_AVAILABLE": ResponseCode.MASTER_NOT_AVAILABLE,
    "INVALID_CONTROLLER_REQUEST": ResponseCode.INVALID_CONTROLLER_REQUEST,
    "BROKER_NOT_ALIVE": ResponseCode.BROKER_NOT_ALIVE,
    "CONTROLLER_NOT_LEADER": ResponseCode.CONTROLLER_NOT_LEADER,
    "BROKER_METADATA_NOT_EXIST": ResponseCode.BROKER_METADATA_NOT_EXIST,
    "INVALID_CLEAN_BROKER_METADATA": ResponseCode.INVALID_CLEAN_BROKER_METADATA,
    "BROKER_NEEDS_TO_BE_REGISTERED": ResponseCode.BROKER_NEEDS_TO_BE_REGISTERED,
    "ELECT_MASTER_FAILED": ResponseCode.ELECT_MASTER_FAILED,
    "ALTER_SYNC_STATE_SET_FAILED": ResponseCode.ALTER_SYNC_STATE_SET_FAILED,
    "BROKER_ID_INVALID": ResponseCode.BROKER_ID_INVALID,
    "CONTROLLER_LOG_FAILED": ResponseCode.CONTROLLER_JRAFT_INTERNAL_ERROR,
    "REQUEST_NOT_SUPPORTED": ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    "UNSUPPORTED_FEATURE": ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
}

_NAMES_OF_CODES: Final[dict[int, str]] = {
    ResponseCode.SYSTEM_BUSY: "TOO_MANY_REQUESTS",
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "REQUEST_NOT_SUPPORTED",
    ResponseCode.FLUSH_DISK_TIMEOUT: "FLUSH_TIMEOUT",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "REPLICAS_TIMEOUT",
    ResponseCode.SERVICE_NOT_AVAILABLE: "NOT_MASTER",
    ResponseCode.NO_PERMISSION: "FORBIDDEN",
    ResponseCode.TOPIC_NOT_EXIST: "TOPIC_NOT_FOUND",
    ResponseCode.TOPIC_EXIST_ALREADY: "TOPIC_EXISTS",
    ResponseCode.NOT_LEADER_FOR_QUEUE: "NOT_LEADER_FOR_QUEUE",
    ResponseCode.USER_NOT_EXIST: "USER_NOT_FOUND",
    ResponseCode.POLICY_NOT_EXIST: "POLICY_NOT_FOUND",
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: "ILLEGAL_FILTER",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "GROUP_NOT_FOUND",
}
"""What the codes of a server without error numbers mean to us."""

_LABEL = re.compile(r"\s*\[MS-(\d{4})\]\s*$")


def response_code_of(error: MillstreamError) -> ResponseCode:
    """The code that an error travels under; SYSTEM_ERROR for those that have none of their own."""
    return _CODES.get(error.name, ResponseCode.SYSTEM_ERROR)


def error_of(answer: RemotingCommand, address: str) -> MillstreamError:
    """The error that an answer other than SUCCESS stands for, with the address of the server that said it."""
    remark = answer.remark or ""
    label = _LABEL.search(remark)
    entry = find_entry(int(label[1])) if label else None
    if label and entry:
        remark_text = remark[: label.start()]
        message = remark_text.removesuffix(entry.remedy).rstrip()
        # Where the server knew a better remedy than the catalogue's, the sentence ends with it.
        return _class_of(entry)(entry.name, message, remedy=None if message != remark_text else "")
    entry = CATALOGUE[_NAMES_OF_CODES.get(answer.code, "REFUSED_BY_SERVER")]
    return _class_of(entry)(entry.name, f"{address} answered code {answer.code}: {remark or 'no reason given'}")


def _class_of(entry: ErrorEntry) -> type[MillstreamError]:
    if entry.name == "FLUSH_TIMEOUT" or 4000 <= entry.number < 5000:
        return StoreError
    if 2300 <= entry.number < 2320:
        return AccessRefused
    if 2000 <= entry.number < 3000:
        return NameRefused
    if 3000 <= entry.number < 3200:
        return MessageRefused
    if 3200 <= entry.number < 4000:
        return ConsumeRefused
    return ConnectionFailed if entry.name in ("PROTOCOL_VIOLATION", "NOT_MASTER") else Refused
