"""`python -m interop.reference compare|record [SCRIPT ...]`.

`compare` plays the scripts against a reference broker and ours and prints what differs without being meant; `record`
plays them against ours alone and keeps the answers for tests/broker/remoting.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from interop.reference.comparison import compare, play_ours
from interop.reference.scripts import SCRIPTS
from interop.reference.servers import ReferenceServers
from interop.reference.transcript import write_transcript
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


def main() -> int:
    """0 if nothing differs that is not meant."""
    what, *names = sys.argv[1:] or ["compare"]
    with tempfile.TemporaryDirectory() as scratch:
        return {"compare": _compare, "record": _record}[what](names or list(SCRIPTS), Path(scratch))


if __name__ == "__main__":
    raise SystemExit(main())
