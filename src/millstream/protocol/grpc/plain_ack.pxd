# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

cdef unsigned char _GROUP, _TOPIC, _ENTRY, _NAME, _MESSAGE_ID, _HANDLE
cdef Py_ssize_t _ONE_BYTE

@cython.locals(
    size=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t, length=Py_ssize_t, more=Py_ssize_t, field=cython.uchar, group=str,
    topic=str, entries=list, handles=list, deliveries=list, entry=bytes, handle=bytes,
)
cdef tuple _read_request(bytes raw, bytes broker_name, object max_entries)

cdef str _read_name(bytes raw, Py_ssize_t at, Py_ssize_t end)

@cython.locals(parts=list, told=bytes, end=bytes, entry=bytes, said=bytes)
cpdef bytes encode_ack_answer(bytes status, list entries, list statuses)
