"""A scan reads whole ranges of a queue's objects: each block once, in few requests, verified."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from crash.faulty_objects import FaultyObjects

from millstream.model.errors import MillstreamError
from millstream.model.message import OutgoingMessage
from millstream.protocol.record import outline_record
from millstream.tiered import cold_scan
from millstream.tiered.chunk import ChunkRecord, PartRecords, encode_chunk
from millstream.tiered.cold_map import ColdRange
from millstream.tiered.cold_scan import ColdScan

KEY = "ms1/c/b/log/0/00000.msc"
