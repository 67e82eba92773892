"""What is asked of both brokers, one script for each kind of request. Each uses topics and groups of its own."""

from __future__ import annotations

from typing import Final

from interop.reference.scripts.consumers import CONSUMERS, LOCKS
from interop.reference.scripts.delays import DELAYS
from interop.reference.scripts.offsets import OFFSETS
from interop.reference.scripts.pop import ORDERED_POP, POP, POP_RESETS
from interop.reference.scripts.pulling import PULLING
from interop.reference.scripts.retries import RETRIES
from interop.reference.scripts.searching import SEARCHING
from interop.reference.scripts.sending import BATCHES, SENDING
from interop.reference.scripts.tools import KEYS, TOOLS
from interop.reference.scripts.topics import GROUPS, TOPICS
from interop.reference.scripts.transactions import TRANSACTIONS
from interop.reference.scripts.types import BIG_HEADERS, TYPES
from interop.reference.steps import Step

__all__ = ["SCRIPTS"]

SCRIPTS: Final[dict[str, list[Step]]] = {
    "topics": TOPICS,
    "groups": GROUPS,
    "sending": SENDING,
    "batches": BATCHES,
    "pulling": PULLING,
    "offsets": OFFSETS,
    "searching": SEARCHING,
    "consumers": CONSUMERS,
    "locks": LOCKS,
    "retries": RETRIES,
    "delays": DELAYS,
    "transactions": TRANSACTIONS,
    "pop": POP,
    "ordered_pop": ORDERED_POP,
    "pop_resets": POP_RESETS,
    "types": TYPES,
    "big_headers": BIG_HEADERS,
    "tools": TOOLS,
    "keys": KEYS,
}
