"""The real rules as a user brings them in: imported by the command, tried on real events, kept whole in the store."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from itertools import islice
from pathlib import Path

import pytest
from real_input import RULES, event_lines, needs_real_input

from millstream.cli.main import main
from millstream.streams.rules.store import RuleStore

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

pytestmark = [pytest.mark.data, pytest.mark.long, needs_real_input]

EVENTS = 4_000


def test_all_real_rules_are_imported_kept_and_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tarfile.open(fileobj=io.BytesIO(zstd.decompress(RULES.read_bytes()))) as packed:
        packed.extractall(tmp_path / "sigma", filter="data")
    (tmp_path / "events.jsonl").write_bytes(b"".join(islice(event_lines(), EVENTS)))
    store = ("--store", str(tmp_path / "store"), "-o", "json")

    assert main(["rules", "import", str(tmp_path / "sigma"), *store]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rules"], told["refused"], told["version"]) == (2_407, [], 1)
    kept = RuleStore(tmp_path / "store").latest()
    # What was kept is what is read again, so that nothing is published.
    assert main(["rules", "import", str(tmp_path / "sigma"), *store]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == 1

    tried = [rule.id for rule in kept.rules if rule.level == "critical"]
    assert main(["rules", "test", *tried, "--all", "--events", str(tmp_path / "events.jsonl"), *store]) == 0
    staged = json.loads(capsys.readouterr().out)
    assert main(["rules", "test", *tried, "--all", "--plain", "--events", str(tmp_path / "events.jsonl"), *store]) == 0
    assert json.loads(capsys.readouterr().out) == staged
    assert len(staged) == len(tried)
