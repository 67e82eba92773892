"""What the page /metrics tells of the parts of one server; names and labels stand in `telemetry.metrics`."""
