# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.protocol.record_encoder cimport PlainRecord, RecordEncoder


cdef class QueueShare:
    cdef public object queue, batch_count, first_offset
    cdef public long long next_offset
    cdef public list entries


cdef class WriteBatch:
    cdef public long long end
    cdef public list runs
    cdef public dict shares
    cdef object _log, _queues
    cdef RecordEncoder _encoder
    cdef long long _limit

    @cython.locals(
        appended=list, shares=dict, laid_out=list, end=cython.longlong, limit=cython.longlong, share=QueueShare,
        queue_offset=cython.longlong, record=bytes, size=cython.longlong, held=dict, plain=PlainRecord,
        encoder=RecordEncoder, light=list, entry=bytes, places=bytes, tag=str, plain_topic=str, of_queue=dict,
        found=QueueShare,
    )
    cpdef list add(self, object records)

    @cython.locals(share=QueueShare)
    cdef QueueShare _share(self, object topic, object queue_id, object batch_count)

    cdef list _light_shares(self, object names)

    @cython.locals(start=cython.longlong)
    cdef tuple _roll(self, long long end, long long size)


@cython.locals(size_bytes=cython.longlong, plain=PlainRecord)
cpdef long long measure_bodies(object records) except -1

@cython.locals(topic=str, last_queue=cython.longlong, queue_id=cython.longlong, plain=PlainRecord)
cpdef note_queues(object records, set found)

@cython.locals(share=QueueShare)
cdef void _add_to_all(list shares, bytes entry)

@cython.locals(share=QueueShare, places=list)
cdef bytes _light_places(list shares)

@cython.locals(share=QueueShare, held=dict, places=list)
cdef object _with_light_places(object message, list shares)
