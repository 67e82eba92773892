# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.protocol.checksum cimport has_checksum

cdef Py_ssize_t _BLOCK_BYTES, _CHUNK_BYTES, _CHECKSUM_BYTES, _LEAST_BYTES, _LEAST_TAIL_BYTES, _HEAD_BYTES
cdef long long _MAGIC_V1, _MAGIC_V2, _UNUSUAL, _ROLLBACK, _NEVER
cdef Py_ssize_t _BUCKET_SHIFT

cdef class RawBlock:
    cdef public bytes raw
    cdef public long long records, first_queue_offset, next_queue_offset
    cdef public long long first_log_offset, last_log_offset, first_stored_ms, last_stored_ms

cdef class PartRecords:
    cdef public str topic
    cdef public long long queue_id
    cdef public list blocks, keys
    cdef public Py_ssize_t size_bytes

cdef class QueueRecords:
    cdef public str topic
    cdef public long long queue_id
    cdef public list parts, keys
    cdef PartRecords _part
    cdef RawBlock _block
    cdef Py_ssize_t _block_bytes, _start, _end
    cdef list _pieces
    cdef bytes _data

    @cython.locals(size=Py_ssize_t, block=RawBlock, part=PartRecords, last_block=RawBlock, place=cython.longlong)
    cpdef long long add(
        self, bytes data, Py_ssize_t start, Py_ssize_t end, long long queue_offset, long long log_offset,
        long long stored_ms
    ) except -1
    cpdef widen(self, long long message_count)
    cpdef finish(self)
    @cython.locals(piece=bytes)
    cdef _end_block(self, RawBlock block)

cdef class _Topic:
    cdef public str name
    cdef public long long first_log_offset
    cdef public long long seed
    cdef public dict queues
    cdef QueueRecords queue(self, long long queue_id)

cdef class GatheredRecords:
    cdef object _first_of
    cdef dict _topics

    @cython.locals(
        position=Py_ssize_t, size_bytes=Py_ssize_t, last=Py_ssize_t, size=cython.longlong, magic=cython.longlong,
        queue_offset=cython.longlong, own_log_offset=cython.longlong, flags=cython.longlong,
        stored_ms=cython.longlong, body_bytes=cython.longlong, following=Py_ssize_t, checked=Py_ssize_t,
        name=Py_ssize_t, end_of_name=Py_ssize_t, topic=_Topic, place=cython.longlong, queue=QueueRecords,
    )
    cpdef long long take(self, bytes data, long long log_offset) except -1
    cpdef list finish(self)
    cdef _Topic _topic(self, bytes name)
    @cython.locals(topic=_Topic, queue=QueueRecords)
    cdef bint _take_unusual(self, bytes data, Py_ssize_t position, Py_ssize_t following, long long log_offset) except -1

@cython.locals(end=Py_ssize_t, text=Py_ssize_t)
cdef Py_ssize_t _end_of_name(bytes data, Py_ssize_t name, Py_ssize_t following, long long magic) except -1

@cython.locals(word=bytes, key=bytes, key_hash=cython.ulonglong)
cdef _add_keys(QueueRecords queue, bytes text, long long seed, unsigned long long place)

@cython.locals(number=Py_ssize_t, key=cython.ulonglong)
cpdef share_out_keys(list keys, Py_ssize_t start, Py_ssize_t end, list buckets)

@cython.locals(
    position=Py_ssize_t, size_bytes=Py_ssize_t, size=Py_ssize_t, following=Py_ssize_t, checked=Py_ssize_t,
    records=list,
)
cpdef list split_records(bytes data)

@cython.locals(
    position=Py_ssize_t, size_bytes=Py_ssize_t, size=Py_ssize_t, following=Py_ssize_t, behind_body=Py_ssize_t,
    flags=cython.longlong, body_bytes=cython.longlong, places=list,
)
cpdef list places_of(bytes data)
