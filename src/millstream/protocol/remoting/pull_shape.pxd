# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.protocol.remoting.request_shape cimport RequestShape, digits_end, number_of

cdef Py_ssize_t _QUEUE_DIGITS, _OFFSET_DIGITS, _OPAQUE_DIGITS, _IS_OPAQUE, _IS_QUEUE, _IS_OFFSET, _IS_COMMITTED


cdef class ShapedPull:
    cdef public long long commit_offset, opaque, queue_id, queue_offset


cdef class PullShape(RequestShape):

    @cython.locals(
        pieces=list, kinds=list, at=Py_ssize_t, number=Py_ssize_t, piece=bytes, kind=Py_ssize_t, begin=Py_ssize_t,
        most=Py_ssize_t, value=cython.longlong, opaque=cython.longlong, queue_id=cython.longlong,
        queue_offset=cython.longlong, commit_offset=cython.longlong, last=bytes,
    )
    cpdef object read(self, bytes data, Py_ssize_t start, Py_ssize_t body_start, Py_ssize_t end)

    @cython.locals(ext=dict)
    cpdef object command(self, object request)
