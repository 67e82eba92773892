"""The example's package as if it were installed: its modules and its entry points on the path."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "connector"


@contextmanager
def installed(directory: Path, project: dict[str, object] | None = None, *, modules: Path = EXAMPLE) -> Iterator[None]:
    """`directory` holds what an installer would write of the `project` (None: the example's own pyproject.toml)."""
    if project is None:
        project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    info = directory / f"{str(project['name']).replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"]
    assert isinstance(groups, dict)
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {to}\n" for name, to in named.items()) for group, named in groups.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    added = [str(directory), str(modules)]
    sys.path[:0] = added
    try:
        yield
    finally:
        for entry in added:
            sys.path.remove(entry)
        for name in [name for name in sys.modules if name.partition(".")[0] == "folder_connector"]:
            del sys.modules[name]
