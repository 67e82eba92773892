# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.protocol.checksum cimport write_number
from millstream.protocol.record_encoder cimport PlainRecord, RecordEncoder

cdef bint _IS_COMPILED
cdef Py_ssize_t _ENTRY_SIZE_AT, _ENTRY_CODE_AT


cdef class QueueShare:
    cdef public object queue, batch_count, first_offset
    cdef public long long next_offset
    cdef public bytearray entries

    @cython.locals(entries=bytearray, at=Py_ssize_t)
    cpdef add(self, long long log_offset, long long size, long long code, long long timestamp_ms, object count)


cdef class WriteBatch:
    cdef public long long end
    cdef public list runs
    cdef public dict shares
    cdef object _log, _queues
    cdef str _topic
    cdef dict _of_queue
    cdef RecordEncoder _encoder
    cdef long long _limit

    @cython.locals(
        appended=list, shares=dict, laid_out=list, end=cython.longlong, limit=cython.longlong, share=QueueShare,
        queue_offset=cython.longlong, record=bytes, size=cython.longlong, held=dict, plain=PlainRecord,
        encoder=RecordEncoder, light=list, places=bytes, tag=str, last_tag=str,
        code=cython.longlong, timestamp_ms=cython.longlong,
    )
    cpdef list add(self, object records)

    @cython.locals(share=QueueShare)
    cdef QueueShare _share(self, object topic, object queue_id, object batch_count)

    @cython.locals(found=QueueShare)
    cdef QueueShare _plain_share(self, str topic, object queue_id)

    cdef list _light_shares(self, object names)

    @cython.locals(start=cython.longlong)
    cdef tuple _roll(self, long long end, long long size)


@cython.locals(size_bytes=cython.longlong, plain=PlainRecord)
cpdef long long measure_bodies(object records) except -1

@cython.locals(topic=str, last_queue=cython.longlong, queue_id=cython.longlong, plain=PlainRecord)
cpdef note_queues(object records, set found)

@cython.locals(total=cython.longlong, largest=cython.longlong, size=cython.longlong, record=PlainRecord)
cpdef tuple measure_stored(object records)

@cython.locals(share=QueueShare)
cdef _add_to_all(list shares, long long log_offset, long long size, long long code)

@cython.locals(share=QueueShare, places=list)
cdef bytes _light_places(list shares)

@cython.locals(share=QueueShare, held=dict, places=list)
cdef object _with_light_places(object message, list shares)
