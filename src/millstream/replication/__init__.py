"""What a master and its replicas decide, pure: epochs of a log, the sync state set, the confirmed offset, the lease.

    acks of replicas ─► SyncSet ─► confirmed offset ─► what readers see and senders are answered
                           └──► requests to the controller: more or fewer members
    epoch lists of both ─► EpochList.divergence ─► where a replica cuts its log

Sockets and stores are not here: a broker's role joins these with `protocol.replication_frames`, `store.truncation` and
the controller. All numbers are log offsets in bytes; times are seconds of a monotonic clock.
"""
