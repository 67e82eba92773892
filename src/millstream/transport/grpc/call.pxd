# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.protocol.http2.connection cimport Http2Core
from millstream.protocol.http2.stream cimport Http2Stream

cdef Py_ssize_t PREFIX_BYTES, _PIECE_BYTES


cdef class ServerCall:
    cdef object _connection, _half, _inbound, _reader
    # A test looks at it.
    cdef public object _writer
    cdef bint _has_headers, _is_gone
    cdef list _pieces
    cdef long long _pieces_bytes
    cdef public object deadline_at_s, deadline_s, method, on_gone, state
    cdef public long long bucket, expected_bytes, untaken_bytes
    cdef public bint is_compressed
    cdef public dict metadata
    cdef public bytes request
    cdef public Http2Stream stream

    cpdef answer(self, bytes message)

    @cython.locals(core=Http2Core)
    cpdef answer_frames(self, bytes data)

    cpdef write(self, bytes message)

    @cython.locals(data=bytes, core=Http2Core)
    cpdef flush(self)

    @cython.locals(stream=Http2Stream, inbox=list, data=bytes, size=Py_ssize_t)
    cpdef bint take_whole(self) except -1

    cpdef deliver(self, bytes message)

    cpdef wake_writer(self)

    @cython.locals(core=Http2Core)
    cdef _begin(self)
