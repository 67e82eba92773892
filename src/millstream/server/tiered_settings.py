"""Where a broker's object store and its catalogue of tables are, from its settings, checked before anything starts."""

from __future__ import annotations

from millstream.server.columns.catalog import checked_catalog
from millstream.server.configuration.roles import BrokerConfiguration
from millstream.tiered.places import ObjectPlace

__all__ = ["catalog_of", "place_of"]


def place_of(told: BrokerConfiguration) -> ObjectPlace | None:
    """The object store; None where the settings name none. Raises ILLEGAL_SETTING."""
    tiered = told.tiered
    return ObjectPlace(tiered.url, tiered.endpoint, tiered.region) if tiered.url else None


def catalog_of(told: BrokerConfiguration) -> str:
    """The catalogue of tables; blank for none. Raises ILLEGAL_SETTING."""
    return checked_catalog(told.tiered.catalog)
