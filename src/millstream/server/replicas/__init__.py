"""A broker that is one replica of a set: its identity, its way to the controllers, and its change of roles.

Membership ◄──► controllers          who is the master, in which epoch, with which set
    │
ReplicatedBroker ── replica ──► FollowerTask ──fetch──► the master's port
    └────────────── master ───► FetchPort ◄──fetch──── replicas
"""
