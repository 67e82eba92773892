# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.protocol.http2.allowance cimport Allowance
from millstream.protocol.http2.hpack cimport HeaderEncoder
from millstream.protocol.http2.stream cimport Http2Stream

cdef int DATA, END_HEADERS, END_STREAM, HEADERS, WRITABLE
cdef Py_ssize_t FRAME_HEADER_BYTES, _MAX_KEPT_BLOCKS


cdef class AnswerSender:
    cdef Allowance _allowance
    cdef HeaderEncoder _encoder
    cdef dict _blocks, _waiting
    cdef long long _send_window_bytes, _peer_window_bytes, _peer_frame_bytes, _sent_bytes
    # Tests look at it.
    cdef public dict _ended_early
    cdef list _news
    cdef public list outgoing
    cdef public dict streams
    cdef public long long outgoing_bytes, queued_bytes, replies_bytes

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

    cdef _note(self, Http2Stream stream, int what)

    cdef _note_ended_early(self, long long number)

    cdef _forget(self, Http2Stream stream)
