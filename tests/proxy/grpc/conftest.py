"""The service over the in-memory backend."""

from __future__ import annotations

import pytest
from service_calls import METADATA, Service

from millstream.model.clock import ManualClock
from millstream.model.message import Address
from millstream.proxy.grpc.adapter import MessagingAdapter
from millstream.proxy.grpc.route import Advertised
from millstream.proxy.processor import Processor


@pytest.fixture
def service(processor: Processor, clock: ManualClock) -> Service:
    advertised = Advertised(Address("192.0.2.1", 8081))
    return Service(MessagingAdapter(processor, advertised, clock=clock), dict(METADATA))
