# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.protocol.remoting.send_shape cimport SentRecord


cdef class SendAnswers:
    cdef list _before
    cdef bytes _before_id, _end, _end_with_id
    cdef dict _heads

    @cython.locals(
        parts=list, before_opaque=str, before_place=str, before_queue=str, before_offset=str, heads=dict, end=bytes,
        before_id=bytes, end_with_id=bytes, record=SentRecord, front=bytes, quoted=bytes, size=Py_ssize_t,
    )
    cpdef bytes frames(self, list sent)

    @cython.locals(head=bytes)
    cdef bytes _head(self, Py_ssize_t size)
