"""The catalogue of tables as a setting says it."""

from __future__ import annotations

from urllib.parse import urlsplit

from millstream.model.errors import StartRefused

__all__ = ["checked_catalog"]


def checked_catalog(catalog: str) -> str:
    """The address, which has no password: ILLEGAL_SETTING. Those of databases come from their own environment, as
    PGPASSWORD."""
    if not catalog:
        return ""
    try:
        parts = urlsplit(catalog)
    except ValueError:
        parts = None
    if parts is None or not parts.scheme or "://" not in catalog:
        raise StartRefused(
            "ILLEGAL_SETTING", f"tiered.catalog: {catalog[:200]!r} is no address as sqlite:////tables.db."
        )
    if parts.password:
        raise StartRefused("ILLEGAL_SETTING", "tiered.catalog holds a password, which does not belong into a file.")
    return catalog
