"""`python -m interop.reference compare|record [SCRIPT ...]`, or `metrics`.

`compare` plays the scripts against a reference broker and ours and prints what differs without being meant; `record`
plays them against ours alone and keeps the answers for tests/broker/remoting; `metrics` keeps the names and labels of
the reference's Prometheus page for tests/telemetry.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from interop.reference.comparison import compare, play_ours
from interop.reference.metric_names import RECORDED, SCRIPTS_OF_PAGES, page_names, write_names
from interop.reference.scripts import SCRIPTS
from interop.reference.servers import ReferenceServers
from interop.reference.transcript import Servers, write_transcript
from interop.reference.watched import page_after
from millstream.protocol.remoting.codes import ResponseCode

TRANSCRIPTS = Path(__file__).parent.parent.parent / "tests" / "broker" / "remoting" / "transcripts"


def _record(names: list[str], scratch: Path) -> int:
    TRANSCRIPTS.mkdir(exist_ok=True)
    for name in names:
        played = play_ours(name, scratch / name)
        # What is not supported yet would only be a vector against supporting it.
        kept = [one for one in played if one.answer.get("code") != ResponseCode.REQUEST_CODE_NOT_SUPPORTED]
        write_transcript(TRANSCRIPTS / f"{name}.json", kept)
        sys.stdout.write(f"{name}: {len(kept)} of {len(played)} answers kept\n")
    return 0


def _compare(names: list[str], scratch: Path) -> int:
    count = 0
    with ReferenceServers(scratch / "reference") as reference:
        for name in names:
            for difference in compare(name, reference, scratch / name):
                count += 1
                sys.stdout.write(f"{difference}\n")
    sys.stdout.write(f"{count} differences that are not meant\n")
    return int(count > 0)


def _metrics(_names: list[str], scratch: Path) -> int:
    with ReferenceServers(scratch / "reference") as reference:
        servers = Servers(reference.broker, reference.nameserver)
        page = asyncio.run(page_after(SCRIPTS_OF_PAGES, servers, reference.metrics_page))
    names = page_names(page)
    write_names(RECORDED, names)
    sys.stdout.write(f"{len(names)} names\n")
    return 0


def main() -> int:
    """0 if nothing differs that is not meant."""
    what, *names = sys.argv[1:] or ["compare"]
    with tempfile.TemporaryDirectory() as scratch:
        act = {"compare": _compare, "record": _record, "metrics": _metrics}[what]
        return act(names or list(SCRIPTS), Path(scratch))


if __name__ == "__main__":
    raise SystemExit(main())
