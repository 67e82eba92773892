"""How replicas come to have the master's log, sans-io: requests, answers and times in and out.

    Follower ──fetch: my log ends here──► LogSource ──► SyncSet ──► confirmed offset ──► what readers see
        ▲                                   │           └──► requests to the controller: more or fewer members
        └───bytes of the log, confirmed─────┘
    EpochLog: a store's log and the epochs of its parts; EpochList.divergence says where a replica cuts its log

A fetch is the acknowledgement of all before it, as in Kafka. Sockets are not here: a broker's role joins these with the
controller. All numbers are log offsets in bytes; times are seconds of a monotonic clock.
"""
