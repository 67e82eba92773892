# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.protocol.checksum cimport checksum_property, has_checksum

cdef Py_ssize_t _CHECKSUM_BYTES, _LEAST_BYTES, _ENTRY_BYTES, _SIZE_AT, _HIGHEST_SIZE, _QUEUE_OFFSET_AT, _LOG_OFFSET_AT
cdef bint _IS_COMPILED

@cython.locals(
    size_bytes=cython.longlong, size=cython.longlong, place=cython.longlong, start=cython.longlong,
    last=cython.longlong, last_size=cython.longlong, end=cython.longlong, data=bytes,
)
cpdef bytes copy_records(object view, long long view_offset, list places, long long max_bytes)

@cython.locals(at=Py_ssize_t, size=Py_ssize_t, end=Py_ssize_t, checked=Py_ssize_t, place=cython.longlong, crc=cython.longlong)
cpdef bint is_checked_run(bytes data, list places, long long queue_offset) except -1

@cython.locals(
    first=cython.longlong, size_bytes=cython.longlong, at=Py_ssize_t, is_whole=bint, size=cython.longlong,
    start=cython.longlong, begin=Py_ssize_t, place=cython.longlong, checked=Py_ssize_t, data=bytes,
)
cpdef bytes copy_checked_run(
    object view, long long view_offset, bytes packed, long long max_bytes, long long queue_offset
)

cdef bint _begins_with(
    bytes data, Py_ssize_t at, unsigned long long size, long long queue_offset, unsigned long long log_offset
) except -1

@cython.locals(number=cython.ulonglong, place=Py_ssize_t)
cpdef unsigned long long number_at(bytes data, Py_ssize_t at, Py_ssize_t size) except? 1
