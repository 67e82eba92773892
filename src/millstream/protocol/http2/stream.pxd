# Types of the compiled form; the .py beside it is the source, and runs as it is.

cdef class Http2Stream:
    cdef public long long number, inbox_bytes, received_bytes, queued_bytes
    cdef public long long receive_window_bytes, send_window_bytes
    cdef public double opened_s
    cdef public int news
    cdef public bint is_ended, is_answered, is_open
    cdef public object head, owner, content_length, queue, trailers
    cdef public list inbox
