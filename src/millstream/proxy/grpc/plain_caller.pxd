# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

cdef str _CLIENT_ID, _NAMESPACE, _PEER
cdef Py_ssize_t _MAX_HEADER_BYTES


cdef class PlainCaller:
    cdef object _adapter, _peer
    cdef str _client_id, _address

    cpdef enter(self, dict metadata, object now_s)

    @cython.locals(client_id=str, name=str, value=str, size=Py_ssize_t)
    cpdef bint is_last(self, dict metadata) except -1
