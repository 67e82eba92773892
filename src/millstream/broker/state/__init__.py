"""A broker's state: topics, groups, mappings, permission, users, offsets and ledgers.

Each change is a record of a system topic in the broker's own log, so one mechanism recovers, replicates and truncates
messages and state together. The documents in `config` are snapshots of that state as of a state offset; a start loads
them and applies the changes behind it.

    registry ──► StateTable ──► StateLog ──► commit log ──► replicas
                     ▲                           │
                     └── document + changes ◄────┘ (start)
"""
