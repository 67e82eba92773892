"""Agreement of a few processes on one log: Raft, without sockets, threads and clocks of its own.

    proposal ─► RaftNode ─► Raft (pure) ─► what to persist ─► RaftStorage (fsync)
                   ▲                                              │
    messages ──────┘        messages, applied entries  ◄──────────┘

`RaftNode` is what others use: it takes proposals, messages of the other members and time, persists before it lets a
message out, applies entries to a state machine, and cuts the log behind snapshots. Source: Ongaro, Consensus: Bridging
Theory and Practice (2014), with pre-vote (9.6), read index (6.4) and check of the quorum (6.2).

Limits: 1, 3 or 5 members, fixed by configuration; entries of up to 1 MiB; no pipelining; reads ask a quorum.
"""
