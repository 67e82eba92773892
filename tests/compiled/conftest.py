"""The compiled package, built once for all tests that want it, and skipped aloud where nothing can be compiled."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent


def _load_builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_compiled", ROOT / "tools" / "build_compiled.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def builder() -> ModuleType:
    return _load_builder()


@pytest.fixture(scope="session")
def compiled(builder: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the compiled package."""
    missing = builder.what_is_missing()
    if missing is not None:
        pytest.skip(f"the hot modules are not compiled here: {missing}")
    target = tmp_path_factory.mktemp("compiled")
    builder.build(target)
    return target
