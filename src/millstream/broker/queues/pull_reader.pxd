# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython


cdef class PullReader:
    cdef object _store, _offsets, _counters, _outgoing, _group, _topic
    cdef long long _queues
    cdef public long long max_offset, min_offset, next_offset

    @cython.locals(found=tuple, data=bytes, count=cython.longlong)
    cpdef bytes read(self, long long queue_id, long long queue_offset, object max_messages, object max_bytes)
