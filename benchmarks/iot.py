"""The example of machines over MQTT at several rates: its own summary of each run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

__all__ = ["measure_iot"]

_EXAMPLE: Final = Path(__file__).parent.parent / "examples" / "iot" / "factory.py"
_RATES: Final = os.environ.get("IOT_RATES", "1000,4000,8000")
"""Readings a second that are asked for, one run each."""
_SECONDS: Final = int(os.environ.get("IOT_SECONDS", "15"))
_DEVICES: Final = os.environ.get("IOT_DEVICES", "200")
_UNUSUAL_SHARE: Final = "0.01"


def measure_iot() -> dict[str, Any]:
    """The summaries by rate. What has no summary because its alerts did not come has the words of its error."""
    found: dict[str, Any] = {}
    for rate in _RATES.split(","):
        sizes = ("--devices", _DEVICES, "--rate", rate, "--readings", str(int(rate) * _SECONDS))
        command = [sys.executable, str(_EXAMPLE), *sizes, "--unusual", _UNUSUAL_SHARE]
        done = subprocess.run(command, capture_output=True, text=True)
        lines = done.stdout.splitlines()
        found[f"{rate}_per_s"] = json.loads(lines[-1]) if not done.stderr else {"error": done.stderr}
        print(rate, found[f"{rate}_per_s"], flush=True)
    return {"load_average_1_min": os.getloadavg()[0], "runs": found}
