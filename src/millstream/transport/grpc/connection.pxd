# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.protocol.http2.connection cimport Http2Core
from millstream.protocol.http2.stream cimport Http2Stream
from millstream.transport.grpc.call cimport ServerCall
from millstream.transport.grpc.deadlines cimport DeadlineTable

cdef int ENDED, OPENED, RESET, WRITABLE
cdef str _CONTENT_TYPE


cdef class GrpcConnection:
    cdef object _block, _loop, _memory, _transport, _unread
    cdef bint _flush_is_due, _is_unread, _reads, _unsent
    cdef dict _wants_room
    cdef Py_ssize_t _unanswered
    cdef DeadlineTable _deadlines
    # A test looks at it.
    cdef public object _port
    cdef public Http2Core core
    cdef public bint is_stuffed
    cdef public double began_s, last_read_s, used_s
    cdef public long long seen_stream
    cdef public object peer, probed_s

    @cython.locals(core=Http2Core, whole=list, stream=Http2Stream, news=cython.int, call=ServerCall, is_whole=bint)
    cpdef data_received(self, bytes data)

    cpdef call_ended(self, ServerCall call)

    cpdef flush_soon(self)

    @cython.locals(core=Http2Core)
    cpdef flush(self)

    @cython.locals(metadata=dict, call=ServerCall)
    cdef _open(self, Http2Stream stream, double now_s)

    @cython.locals(stream=Http2Stream, missing_bytes=cython.longlong)
    cdef bint _take(self, ServerCall call, int news, double now_s) except -1
