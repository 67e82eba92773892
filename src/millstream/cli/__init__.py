"""The `millstream` command: one module per command or group of commands; heavy parts are imported when they run."""
