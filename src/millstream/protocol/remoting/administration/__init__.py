"""Requests and bodies of tools, proxies and nameservers: topics, groups, access, registration."""
