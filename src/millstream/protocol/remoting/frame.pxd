# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.protocol.remoting.request_shape cimport RequestShape, ShapedRun
from millstream.protocol.remoting.shape_memory cimport ShapeMemory

cdef Py_ssize_t _HEAD_BYTES, _LENGTH_WORD_BYTES, _JSON, _COPIED_BYTES


cdef class FrameDecoder:
    cdef public object judge
    cdef Py_ssize_t _max_frame_bytes, _max_header_bytes, _needed_bytes, _frame_bytes
    cdef bytearray _held
    cdef object _large
    cdef ShapeMemory _shapes

    @cython.locals(
        position=Py_ssize_t, available=Py_ssize_t, max_frame_bytes=Py_ssize_t, max_header_bytes=Py_ssize_t,
        total=cython.longlong, header_bytes=Py_ssize_t, end=Py_ssize_t, start=Py_ssize_t, body_start=Py_ssize_t,
        shapes=ShapeMemory, shape=RequestShape, run=ShapedRun,
    )
    cdef Py_ssize_t _read_ordinary(self, bytes data, list found) except -1
