# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.protocol.http2.allowance cimport Allowance
from millstream.protocol.http2.hpack cimport HeaderDecoder, HeaderEncoder
from millstream.protocol.http2.stream cimport Http2Stream

cdef int ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PADDED, PING, PRIORITY, PRIORITY_FLAG
cdef int PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE, ARRIVED, ENDED, RESET, WRITABLE
cdef Py_ssize_t FRAME_HEADER_BYTES, _PREFACE_BYTES, _BYTES_FOR_A_FRAME, _STREAMS_FOR_A_FRAME, _MAX_KEPT_BLOCKS
cdef long long MAX_WINDOW_BYTES, _RESERVED


cdef class Http2Core:
    cdef Allowance _allowance
    cdef HeaderDecoder _decoder
    cdef HeaderEncoder _encoder
    cdef bytes _block
    cdef bytearray _rest
    cdef dict _blocks, _waiting
    cdef long long _block_stream, _last_stream, _send_window_bytes, _peer_window_bytes
    cdef long long _peer_frame_bytes, _sent_bytes
    # These tests look at, or set.
    cdef public dict _ended_early
    cdef public long long _receive_window_bytes
    cdef public object _refuses_above
    cdef int _block_flags
    cdef Py_ssize_t _block_continuations
    cdef bint _has_preface, _has_settings
    cdef object _limits
    cdef list _news
    cdef double _now_s
    cdef public list outgoing
    cdef public dict streams
    cdef public long long answered_pings, outgoing_bytes, queued_bytes, replies_bytes
    cdef public object failure
    cdef public bint is_leaving

    @cython.locals(rest=bytearray, taken=Py_ssize_t, news=list)
    cpdef list receive(self, bytes data, double now_s)

    @cython.locals(at=Py_ssize_t)
    cdef Py_ssize_t _take_preface(self, bytes data) except -1

    @cython.locals(
        size=Py_ssize_t, limit=cython.longlong, upper=cython.longlong, lower=cython.longlong, kind=cython.int,
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

    @cython.locals(size=Py_ssize_t)
    cpdef send_data(self, Http2Stream stream, object data, object trailers=*)

    @cython.locals(size=Py_ssize_t, first=bytes, last=bytes, answer=bytes)
    cpdef send_whole(self, Http2Stream stream, tuple headers, object data, tuple trailers)

    cpdef list take_outgoing(self)

    @cython.locals(before=cython.longlong, block=bytes)
    cdef bytes _encode(self, tuple headers)

    @cython.locals(block=bytes)
    cdef _send_trailers(self, Http2Stream stream, tuple trailers)

    cdef _end_answer(self, Http2Stream stream)

    @cython.locals(waiting=dict, stream=Http2Stream, most=cython.longlong)
    cdef _send_waiting(self)

    @cython.locals(size=Py_ssize_t)
    cdef _send_piece(self, Http2Stream stream, object queue, Py_ssize_t most)

    cdef _put(self, bytes frame)

    cdef _reply(self, bytes frame)

    cdef _spend(self, long long count)

    cdef _note(self, Http2Stream stream, int what)

    cdef _check_known(self, long long number, str kind)

    cdef _break_stream(self, Http2Stream stream, object code)

    cdef _reset_unknown(self, long long number, object code)

    cdef _note_ended_early(self, long long number)

    cdef _forget(self, Http2Stream stream)

    cdef _fail(self, object failure)

@cython.locals(padding=Py_ssize_t)
cdef (Py_ssize_t, Py_ssize_t) _without_padding(bytes data, Py_ssize_t start, Py_ssize_t end) except *
