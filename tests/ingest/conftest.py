"""Lets the tests of all inputs import `gateways` from this folder."""
