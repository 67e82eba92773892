# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.protocol.http2.hpack cimport HeaderDecoder
from millstream.protocol.http2.sending cimport AnswerSender
from millstream.protocol.http2.stream cimport Http2Stream

cdef int ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PADDED, PING, PRIORITY, PRIORITY_FLAG
cdef int PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE, ARRIVED, ENDED, RESET
cdef Py_ssize_t FRAME_HEADER_BYTES, _PREFACE_BYTES, _BYTES_FOR_A_FRAME, _STREAMS_FOR_A_FRAME
cdef long long MAX_WINDOW_BYTES, _RESERVED


cdef class Http2Core(AnswerSender):
    cdef HeaderDecoder _decoder
    cdef bytes _block
    cdef bytearray _rest
    cdef long long _block_stream, _last_stream
    # These tests look at, or set.
    cdef public long long _receive_window_bytes
    cdef public object _refuses_above
    cdef int _block_flags
    cdef Py_ssize_t _block_continuations
    cdef bint _has_preface, _has_settings
    cdef object _limits
    cdef double _now_s
    cdef public long long answered_pings
    cdef public object failure
    cdef public bint is_leaving

    @cython.locals(rest=bytearray, taken=Py_ssize_t, news=list)
    cpdef list receive(self, bytes data, double now_s)

    @cython.locals(at=Py_ssize_t)
    cdef Py_ssize_t _take_preface(self, bytes data) except -1

    @cython.locals(
        size=Py_ssize_t, limit=cython.longlong, kind=cython.int,
        flags=cython.int, number=cython.longlong, length=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t,
    )
    cdef Py_ssize_t _take_frames(self, bytes data, Py_ssize_t at) except -1

    @cython.locals(length=Py_ssize_t, window=cython.longlong, stream=Http2Stream)
    cdef _take_data(self, bytes data, Py_ssize_t start, Py_ssize_t end, int flags, long long number)

    cdef _grant_padding(self, Http2Stream stream, long long size_bytes)

    cdef _keep_data(self, Http2Stream stream, bytes data, Py_ssize_t start, Py_ssize_t end, int flags)

    cdef _end_request(self, Http2Stream stream)

    @cython.locals(depends_on=cython.longlong)
    cdef _take_headers(self, bytes data, Py_ssize_t start, Py_ssize_t end, int flags, long long number)

    @cython.locals(block=bytes)
    cdef _take_continuation(self, bytes content, int flags, long long number)

    @cython.locals(stream=Http2Stream, is_too_large=bint, headers=list)
    cdef _take_block(self, bytes block, int flags, long long number)

    @cython.locals(stream=Http2Stream)
    cdef _open(self, long long number, object head, int flags)

    cdef _take_trailers(self, Http2Stream stream, list headers, int flags)

    @cython.locals(more=cython.longlong, stream=Http2Stream)
    cdef _take_window(self, bytes data, Py_ssize_t start, Py_ssize_t length, long long number)

    cdef _take_other(self, int kind, int flags, long long number, bytes content)

    cdef _take_settings(self, bytes content, int flags, long long number)

    @cython.locals(change=cython.longlong, stream=Http2Stream)
    cdef _apply_setting(self, int name, long long value)

    cdef _take_ping(self, bytes content, int flags, long long number)

    @cython.locals(stream=Http2Stream)
    cdef _take_reset(self, bytes content, long long number)

    @cython.locals(stream=Http2Stream)
    cdef _take_priority(self, bytes content, long long number)

    cdef _reply(self, bytes frame)

    cdef _spend(self, long long count)

    cdef _check_known(self, long long number, str kind)

    cdef _break_stream(self, Http2Stream stream, object code)

    cdef _reset_unknown(self, long long number, object code)

    cdef _fail(self, object failure)

@cython.locals(padding=Py_ssize_t)
cdef (Py_ssize_t, Py_ssize_t) _without_padding(bytes data, Py_ssize_t start, Py_ssize_t end) except *
