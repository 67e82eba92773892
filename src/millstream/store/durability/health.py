"""The health of a store: a failed write or sync of the log disables writes for good."""

from __future__ import annotations

from pathlib import Path

from millstream.model.errors import StoreError
from millstream.store.files import FileNotOpened, is_disk_full

__all__ = ["Health"]


class Health:
    """The failure of the store in `directory`, once there is one. Never retried: what the disk took is unknown."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.failure: str | None = None
        self.is_closed = False

    def check(self) -> None:
        """Raise STORE_FAILED if the store has failed or is closed."""
        if self.failure is not None:
            raise StoreError("STORE_FAILED", self.failure)
        if self.is_closed:
            raise StoreError("STORE_FAILED", f"The store in {self._directory} is closed.")

    def fail(self, what: str, error: OSError) -> StoreError:
        """The error to raise from here on, because the log could not be written, flushed, ..."""
        if self.failure is None:
            self.failure = f"The log in {self._directory} could not be {what}: {error.strerror or error}."
        return StoreError("STORE_FAILED", self.failure)

    def refusal(self, what: str, error: OSError) -> StoreError:
        """The error for files that the log can do without for a while: what passes is not final."""
        if isinstance(error, FileNotOpened):
            return error
        if is_disk_full(error):
            return StoreError("DISK_FULL", f"The log in {self._directory} could not be {what}: {error.strerror}.")
        return self.fail(what, error)
