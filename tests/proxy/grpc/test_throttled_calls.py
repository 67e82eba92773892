"""Clients over what a rule allows them, on the gRPC port."""

from __future__ import annotations

from service_calls import Service

from millstream.model.clock import ManualClock
from millstream.protocol.grpc import messages as m
from millstream.proxy.processor import Processor
from millstream.proxy.throttle import Throttle, ThrottleRule


async def test_a_client_over_its_rate_of_calls_is_told_so_and_may_go_on_later(
    service: Service, processor: Processor, clock: ManualClock
) -> None:
    processor.throttle = Throttle([ThrottleRule(calls=1)])
    assert (await service.send()).status.code == m.OK
    late = await service.send()
    assert late.status.code == m.TOO_MANY_REQUESTS
    assert "MS-2330" in late.status.message
    clock.advance_ms(1_000)
    assert (await service.send()).status.code == m.OK


async def test_a_client_over_its_rate_still_lives(service: Service, processor: Processor) -> None:
    processor.throttle = Throttle([ThrottleRule(bytes=1)])
    await service.send(body=b"more than one byte")
    assert (await service.send()).status.code == m.TOO_MANY_REQUESTS
    beat = await service.call("Heartbeat", m.HeartbeatRequest(client_type=m.PRODUCER))
    assert beat.status.code == m.OK
