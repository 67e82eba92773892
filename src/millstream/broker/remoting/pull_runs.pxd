# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.broker.queues.pull_reader cimport PullReader
from millstream.protocol.remoting.pull_shape cimport ShapedPull


cdef class PullRunAnswers:
    cdef PullReader _reader
    cdef object _suggest, _commit, _max_messages, _max_bytes

    @cython.locals(
        reader=PullReader, left_bytes=cython.longlong, position=Py_ssize_t, pull=ShapedPull, data=bytes,
    )
    cpdef object answer(self, list requests, Py_ssize_t start, list frames, long long max_bytes)
