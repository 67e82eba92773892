"""Wills."""

from __future__ import annotations

from mqtt_peer import Dial, Peer

from millstream.protocol.mqtt.packets import Disconnect, Will
from millstream.protocol.mqtt.properties import Properties, PropertyId
from millstream.protocol.mqtt.reason_codes import ReasonCode


async def watcher(dial: Dial) -> Peer:
    peer = await dial()
    await peer.connect("watcher")
    await peer.subscribe("wills/#", qos=1, retain_as_published=1)
    return peer


async def test_the_will_of_a_client_that_goes_without_a_word_is_published(dial: Dial) -> None:
    watching, peer = await watcher(dial), await dial()
    held = Properties({PropertyId.CONTENT_TYPE: "x"}, [("k", "v")])
    await peer.connect("c", will=Will("wills/c", b"gone", 1, True, held))
    peer.close()
    found = await watching.receive()
    assert (found.topic, found.payload, found.qos, found.retain) == ("wills/c", b"gone", 1, True)
    assert found.properties == held


async def test_the_will_of_a_client_that_says_goodbye_is_not(dial: Dial) -> None:
    watching = await watcher(dial)
    for reason, comes in ((ReasonCode.SUCCESS, False), (ReasonCode.DISCONNECT_WITH_WILL, True)):
        peer = await dial()
        await peer.connect("c", will=Will("wills/c", b"gone"))
        peer.send(Disconnect(reason))
        assert await peer.next_packet() is None
        if comes:
            assert (await watching.receive()).payload == b"gone"
    await watching.expect_nothing()


async def test_a_client_that_is_back_before_the_delay_leaves_no_will(dial: Dial) -> None:
    watching = await watcher(dial)
    will = Will("wills/c", b"late", properties=Properties({PropertyId.WILL_DELAY_INTERVAL: 3600}))
    peer = await dial()
    await peer.connect("c", expiry_s=7200, will=will)
    peer.close()
    peer = await dial()
    assert (await peer.connect("c", clean_start=False, expiry_s=7200)).session_present
    await watching.expect_nothing()


async def test_a_will_is_due_with_the_end_of_its_session_at_the_latest(dial: Dial) -> None:
    watching = await watcher(dial)
    will = Will("wills/c", b"due", properties=Properties({PropertyId.WILL_DELAY_INTERVAL: 3600}))
    peer = await dial()
    await peer.connect("c", will=will)
    peer.close()
    assert (await watching.receive()).payload == b"due"


async def test_a_broken_packet_leaves_the_will(dial: Dial) -> None:
    watching, peer = await watcher(dial), await dial()
    await peer.connect("c", will=Will("wills/c", b"broken"))
    peer.write(b"\x36\x00")
    assert (await peer.expect(Disconnect)).reason is ReasonCode.MALFORMED_PACKET
    assert (await watching.receive()).payload == b"broken"
