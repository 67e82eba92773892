"""All requests whose fields are declared, in both directions."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import MessageRefused
from millstream.protocol.remoting.administration import (
    broker_requests,
    controller_requests,
    replica_requests,
    topic_requests,
)
from millstream.protocol.remoting.fields import Request
from millstream.protocol.remoting.messages import message_requests, replication

_TEXT = st.text("abcXYZ_-09%", min_size=1, max_size=20)
_OF_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "str": _TEXT,
    "str | None": st.none() | _TEXT,
    "int": st.integers(-(2**62), 2**62),
    "int | None": st.none() | st.integers(-(2**62), 2**62),
    "bool": st.booleans(),
    "tuple[str, ...]": st.lists(_TEXT, max_size=3).map(tuple),
}
_MODULES = (
    broker_requests,
    controller_requests,
    message_requests,
    replica_requests,
    replication,
    topic_requests,
)
_CLASSES = [
    kind
    for module in _MODULES
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Request) and kind is not Request
]


def some(kind: type[Any]) -> st.SearchStrategy[Request]:
    return st.builds(kind, *[_OF_TYPE[str(field.type)] for field in dataclasses.fields(kind)])


@given(st.sampled_from(_CLASSES).flatmap(some))
def test_a_request_is_read_as_it_was_written(request: Request) -> None:
    assert type(request).decode(request.encode()) == request


@pytest.mark.parametrize("kind", _CLASSES, ids=lambda kind: kind.__name__)
def test_no_two_fields_of_a_request_have_one_name(kind: type[Any]) -> None:
    names = [field.metadata["wire"][0] for field in dataclasses.fields(kind)]
    assert len({*names}) == len(names) > 0


def test_what_is_missing_or_no_number_is_refused_by_its_name() -> None:
    with pytest.raises(MessageRefused, match="beginTimestamp"):
        message_requests.KeySearchRequest.decode({"topic": "t", "key": "k", "endTimestamp": "1", "maxNum": "1"})
    with pytest.raises(MessageRefused, match="delayLevel"):
        message_requests.SendBack.decode({"group": "g", "offset": "1", "delayLevel": "soon"})


def test_what_may_be_missing_has_its_default_and_is_not_written() -> None:
    fields = {"group": "g", "offset": "1"}
    request = message_requests.SendBack.decode(fields)
    assert (request.delay_level, request.topic, request.max_reconsume_times) == (0, "", -1)
    assert request.encode() == fields


def test_a_flag_is_what_its_request_says_for_it() -> None:
    assert topic_requests.GroupDeletion.decode({"groupName": "g", "cleanOffset": "false"}).keeps_offsets
    assert not topic_requests.GroupDeletion.decode({"groupName": "g", "cleanOffset": "true"}).keeps_offsets
