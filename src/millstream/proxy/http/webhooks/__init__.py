"""Subscriptions whose events are posted to a sink: the Subscriptions API of CloudEvents with HTTP 1.1 Web Hooks."""
