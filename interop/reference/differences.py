"""What differs between two plays of a script, and which differences are meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from interop.reference.transcript import Played

__all__ = ["MEANT", "Difference", "Meant", "differences", "reason_of"]


class Difference(NamedTuple):
    """One place of an answer at which the reference and ours differ; None is a place that is not there."""

    place: str
    """`SCRIPT/STEP/PART/...`."""
    reference: Any
    ours: Any

    def __str__(self) -> str:
        return f"{self.place}: reference {str(self.reference)[:80]!r}, ours {str(self.ours)[:80]!r}"


class Meant(NamedTuple):
    """A pattern of places, `*` for anything, and why they differ."""

    place: str
    reason: str


def differences(script: str, reference: Sequence[Played], ours: Sequence[Played]) -> list[Difference]:
    """All differences of a script. Where the codes differ nothing else of the answer is compared."""
    found = []
    for one, other in zip(reference, ours, strict=True):
        place = f"{script}/{one.step.name}"
        if one.answer.get("code") != other.answer.get("code"):
            found.append(Difference(f"{place}/code", one.answer.get("code"), other.answer.get("code")))
            continue
        left, right = dict(_parts(one.answer)), dict(_parts(other.answer))
        found += [
            Difference(place + part, left.get(part), right.get(part))
            for part in sorted(left.keys() | right.keys())
            if left.get(part) != right.get(part)
        ]
    return found


def reason_of(difference: Difference) -> str | None:
    """Why the difference is meant; None where it is not."""
    return next((meant.reason for meant in MEANT if fnmatchcase(difference.place, meant.place)), None)


def _parts(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _parts(item, f"{place}/{key}")
    elif isinstance(value, list):
        yield f"{place}/length", len(value)
        for number, item in enumerate(value):
            yield from _parts(item, f"{place}/{number}")
    else:
        yield place, value


_REFUSED: Final = "A request that cannot be read is refused as such (13); SYSTEM_ERROR (1) would be tried again."
_NAMES: Final = "Names are checked where they are made; the reference takes any."
_UNKNOWN: Final = "What is not there is said to be so; the reference answers as for an empty one."
_STAMPS: Final = "The broker adds nothing to a message's properties; clients have defaults for what is missing."
_ID: Final = "A message without an id of its client's is known by its place; the reference makes an id up."
_GROUPS: Final = "Groups are made on purpose or by a heartbeat; asking for one does not make it."
_MORE: Final = "Fields of our own beside RocketMQ's, for our own tools."
_DETOUR: Final = "Marks of the way that a message took; no client reads them."
_IN_PLACE: Final = "A message that was not acknowledged comes again in its place, not from a retry topic."
_EMPTY_POP: Final = "An answer without messages has no times."
_LEFT_OUT: Final = "A field that clients have a default for is left out."

MEANT: Final[tuple[Meant, ...]] = (
    Meant("*/properties/CLUSTER", _STAMPS),
    Meant("*/properties/MSG_REGION", _STAMPS),
    Meant("*/properties/TRACE_ON", _STAMPS),
    Meant("*/properties/UNIQ_KEY", _ID),
    Meant("*/ext/transactionId", _ID),
    Meant("*/ext/MSG_REGION", "A refusal has no fields; clients read these of an answer that is good."),
    Meant("*/ext/TRACE_ON", "A refusal has no fields; clients read these of an answer that is good."),
    Meant("*/ext/topicSysFlag", _LEFT_OUT),
    Meant("*/ext/groupSysFlag", _LEFT_OUT),
    Meant("*/ext/forbiddenType", _LEFT_OUT),
    Meant("*/ext/IS_SUB_CHANGE", "Asks for a whole heartbeat; ours does where it needs one."),
    Meant("topics/no name/code", _REFUSED),
    Meant("topics/*number*/code", _REFUSED),
    Meant("topics/delete without a name/code", _REFUSED),
    Meant("topics/bad attribute/code", _REFUSED),
    Meant("topics/delete of the system/code", _UNKNOWN),
    Meant("groups/settings/body/*", "Ours tells a group's waits between attempts."),
    Meant("groups/settings of */code", _GROUPS),
    Meant("groups/create */code", _NAMES),
    Meant("groups/no */code", _REFUSED),
    Meant("groups/* of unknown/code", _UNKNOWN),
    Meant("groups/members without a group/code", _REFUSED),
    Meant("sending/empty body/code", _REFUSED),
    Meant("sending/no topic/code", _REFUSED),
    Meant("sending/*queue*/code", _REFUSED),
    Meant("sending/long topic/code", _UNKNOWN),
    Meant("sending/illegal topic/code", _UNKNOWN),
    Meant("sending/topic of the system/code", _UNKNOWN),
    Meant("batches/*batch/code", _REFUSED),
    Meant("batches/batch of nonsense/code", _REFUSED),
    Meant("batches/batch to a retry topic/code", _UNKNOWN),
    Meant("pulling/* nonsense/code", "A filter that cannot be read is refused; the reference sends everything."),
    Meant("pulling/by an unknown kind of filter/code", "It is refused; the reference sends everything."),
    Meant("pulling/few bytes/*", "The client's own limit of bytes holds."),
    Meant("pulling/no */code", _REFUSED),
    Meant("offsets/*of a bad queue/code", _UNKNOWN),
    Meant("offsets/*of an unknown topic/code", _UNKNOWN),
    Meant("offsets/* in an unknown topic/code", _UNKNOWN),
    Meant("offsets/* without a*/code", _REFUSED),
    Meant("offsets/of a group that has not begun, empty queue/code", "0, where a client begins for 22 too."),
    Meant("offsets/committed nothing/*", "A negative offset is not kept: old clients commit -1 for an empty queue."),
    *(
        Meant(f"offsets/commit{place}", "The group would never get the messages to come.")
        for place in (" beyond the end/code", "ted beyond the end/ext/offset")
    ),
    Meant("offsets/commit of an unknown group/code", "A group comes to be with the first offset that it commits."),
    Meant("offsets/progress*/body/*", _MORE),
    Meant("searching/by a shared key/body/*", "Newest first, which a limit keeps; the reference: oldest first."),
    Meant("searching/*/ext/indexLastUpdate*", "An answer without messages has no fields."),
    Meant("searching/in an unknown topic/code", _UNKNOWN),
    Meant("searching/without a*/code", _REFUSED),
    Meant("consumers/connections/body/connectionSet/*/protocol", _MORE),
    Meant("consumers/producers/body/connectionSet/*/protocol", _MORE),
    Meant("topics/unknown attribute/code", "It is refused by another code, as attributes of illegal values are."),
    Meant("consumers/connections/body/subscriptionTable/*", "What a client derives from the expression is not kept."),
    Meant("consumers/check nothing/code", _REFUSED),
    Meant("consumers/groups of the topic/body/*", "The groups; the reference names the topic itself."),
    *(
        Meant(f"transactions/{place}", "The reference writes a half message anew for each question; ours stays.")
        for place in ("asked/*/queueOffset", "asked/ext/*Offset", "fourth half/ext/queueOffset")
    ),
    Meant("transactions/asked/ext/topic", "The topic that the message is for; clients take it from the message."),
    Meant("transactions/asked/ext/bname", _LEFT_OUT),
    Meant("consumers/leave without a name/code", _REFUSED),
    Meant("topics/send to read only/code", "The topic's permission holds; the reference leaves it to its clients."),
    Meant("locks/without a body/code", _REFUSED),
    Meant("locks/locks of an unknown topic/*", _UNKNOWN),
    Meant("retries/without */code", _REFUSED),
    Meant("retries/unknown group/code", _GROUPS),
    Meant("retries/*/properties/*DLQ_*", "A dead letter says where it comes from, and why."),
    *(
        Meant(f"{script}/*/properties/{name}", _DETOUR)
        for script in ("retries", "delays", "transactions")
        for name in (
            "DELAY",
            "REAL_*",
            "WAIT",
            "__TIMER_OF",
            "TIMER_*",
            "TRAN_*",
            "TRANSACTION_CHECK_TIMES",
        )
    ),
    Meant("retries/sent by the consumer itself/ext/queueOffset", "Where the message waits."),
    Meant("delays/*/ext/queueOffset", "Where the message waits."),
    Meant("delays/*level*/ext/recallHandle", "A message that is delayed by a level can be taken back too."),
    Meant("delays/no level/code", _REFUSED),
    Meant("transactions/without an ending/code", _REFUSED),
    Meant("transactions/says nothing/code", "Answered as well; the request is oneway with all clients."),
    Meant("transactions/of nonsense/code", "Nothing is ended either way."),
    Meant("pop/*/ext/invisibleTime", _EMPTY_POP),
    Meant("pop/*/ext/popTime", _EMPTY_POP),
    Meant("pop/*/ext/restNum", _EMPTY_POP),
    Meant("pop/*/ext/reviveQid", _EMPTY_POP),
    Meant("pop/look/ext/*", "A look gives no handles."),
    Meant("pop/ack */code", "Refused or without effect under another code; clients only look whether it is 0."),
    Meant("pop/second comes back/*", _IN_PLACE),
    Meant("pop/too many/code", "As many as a pop may have are given."),
    Meant("*/no new one before the old/ext/*", _EMPTY_POP),
    Meant("*/nothing behind it/ext/*", _EMPTY_POP),
    Meant("*/nothing more in order/ext/*", _EMPTY_POP),
    Meant("pop_resets/position after acks of before/ext/offset", "What was consumed; there what was popped."),
    Meant("ordered_pop/the first again/ext/restNum", "How many were never looked at; there all from this one on."),
    Meant("ordered_pop/*/body/0/reconsumeTimes", "The record says it too; clients take it from the count."),
    Meant("ordered_pop/ack late/code", "Without effect under another code; clients only look whether it is 0."),
    Meant("types/level into normal/ext/recallHandle", "A message that is delayed by a level can be taken back too."),
    Meant("types/level into normal/ext/queueOffset", "Where the message waits."),
    Meant("types/*/properties/REAL_*", _DETOUR),
    Meant("types/*/properties/__TIMER_OF", _DETOUR),
    Meant("ordered_pop/second has to wait/ext/*", _EMPTY_POP),
    Meant("*/ext/orderCountInfo", "Only deliveries after the first one are counted."),
    Meant("ordered_pop/postpone second/ext/invisibleTime", "The reference counts from its own moment."),
    Meant("consumers/heartbeat of */code", _REFUSED),
    Meant("tools/spans*/body/consumeTimeSpanSet/*Str", _LEFT_OUT),
    Meant(
        "tools/spans*/body/consumeTimeSpanSet/*/delayTime",
        "Of a group without an offset in an empty queue the reference says that it waits since 1970.",
    ),
    Meant("tools/* without a group/code", _REFUSED),
    Meant("tools/index*/body/filterData", _LEFT_OUT),
    Meant("tools/index*/body/queueData/*/physic*", "Records are shorter without the broker's stamps."),
    Meant("tools/index beyond the end/body/*", "How far the queue reaches is told there too."),
    Meant("tools/* of an unknown topic/code", _UNKNOWN),
    Meant("tools/sums by an unknown name/code", _UNKNOWN),
    Meant("tools/progress*/body/*", _MORE),
    Meant("tools/settings of a listed topic/body/attributes/message.type", "A topic made without a type takes all."),
    Meant("*/unknown setting/code", "A setting that there is not is refused; the reference passes over it."),
    Meant("keys/put without a value/code", _REFUSED),
)
"""What is meant to differ. Everything else that differs is a fault, of ours or of a script."""
