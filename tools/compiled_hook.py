"""Puts the compiled hot modules into a wheel where the machine that builds it has a C compiler; else leaves them plain.

A wheel says in millstream/build.json which of the two it is and why, for `millstream doctor`. MILLSTREAM_PLAIN=1 keeps
it plain. An editable install runs the sources as they are.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))
import build_compiled

_IS_PLAIN = os.environ.get("MILLSTREAM_PLAIN", "") not in ("", "0")


class CompiledHook(BuildHookInterface):  # type: ignore[type-arg]
    """The hook of hatchling."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What the build's environment needs: nothing where there is no compiler to use it."""
        return [] if _IS_PLAIN or not build_compiled.has_compiler() else list(build_compiled.REQUIREMENTS)

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files of the wheel are collected."""
        if version == "editable":
            return
        self._scratch = tempfile.TemporaryDirectory(prefix="millstream-wheel-")
        target = Path(self._scratch.name)
        missing = "MILLSTREAM_PLAIN was set" if _IS_PLAIN else build_compiled.what_is_missing()
        made: list[Path] = []
        if missing is None:
            try:
                made = build_compiled.build(target)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a plain wheel is better than none
                missing = f"the compilation failed: {error}"
        report = target / "build.json"
        report.write_text(json.dumps({"compiled": len(made), "missing": missing}))
        files = {str(report): f"{build_compiled.PACKAGE}/build.json"}
        files |= {str(file): file.relative_to(target).as_posix() for file in made}
        build_data["force_include"].update(files)
        if made:
            build_data["pure_python"], build_data["infer_tag"] = False, True
        self.app.display_info(f"{len(made)} hot modules compiled" if made else f"plain Python: {missing}")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled, now that the wheel has it."""
        if version != "editable":
            self._scratch.cleanup()
