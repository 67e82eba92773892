# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

cdef int _INDEXED, _INSERTED, _SIZE_UPDATE, _NEVER_INDEXED, _NOT_INDEXED, _HUFFMAN
cdef Py_ssize_t _MAX_INTEGER, _MAX_CONTINUATION_BYTES, _MAX_KEPT_BLOCK_BYTES, _FIRST_DYNAMIC

cdef Py_ssize_t _entry_bytes(tuple header) except -1

@cython.locals(text=str)
cdef str _read_huffman(bytes coded)

@cython.locals(value=Py_ssize_t, byte=Py_ssize_t, place=Py_ssize_t)
cdef (Py_ssize_t, Py_ssize_t) _read_integer(bytes block, Py_ssize_t at, Py_ssize_t prefix) except *


cdef class HeaderDecoder:
    cdef readonly dict _blocks
    cdef list _table, _sizes
    cdef Py_ssize_t _capacity, _max_list_bytes, _max_table_bytes, _used

    @cython.locals(data=bytes, headers=list, at=Py_ssize_t, left=Py_ssize_t)
    cpdef list decode(self, object block)

    @cython.locals(
        table=list, sizes=list, left=Py_ssize_t, end=Py_ssize_t, text=str, inserts=bint, byte=cython.int,
        index=Py_ssize_t, size=Py_ssize_t, name=str, value=str, header=tuple,
    )
    cdef Py_ssize_t _read_headers(self, bytes data, Py_ssize_t at, list headers) except? -1

    @cython.locals(index=Py_ssize_t, full=Py_ssize_t)
    cdef tuple _read_indexed_name(self, bytes data, int byte, Py_ssize_t at)

    @cython.locals(at=Py_ssize_t, capacity=Py_ssize_t)
    cdef Py_ssize_t _read_size_updates(self, bytes data) except -1

    cdef _insert(self, tuple header, Py_ssize_t size)

    @cython.locals(table=list, sizes=list, used=Py_ssize_t, room=Py_ssize_t)
    cdef _evict(self, Py_ssize_t size)

    @cython.locals(blocks=dict)
    cdef _remember(self, bytes data, list headers, Py_ssize_t left, bint inserts)

@cython.locals(byte=cython.int, size=Py_ssize_t, end=Py_ssize_t)
cdef tuple _read_string(bytes data, str text, Py_ssize_t at, bint repeats)


cdef class HeaderEncoder:
    cdef public long long changes
    cdef Py_ssize_t _capacity, _smallest, _told, _used
    cdef list _table
    cdef dict _indexed

    cdef _write_size_updates(self, bytearray block)

    @cython.locals(table=list, name=str, value=str, size=Py_ssize_t, inserts=bint, index=Py_ssize_t, part=bytearray)
    cdef _write_new(self, bytearray block, tuple header)

    @cython.locals(place=Py_ssize_t, header=tuple)
    cdef Py_ssize_t _find_name(self, str name) except -1

    @cython.locals(table=list, room=Py_ssize_t)
    cdef _evict(self, Py_ssize_t size)

    cdef _drop_indexes(self)

    cdef _forget(self)

cdef _write_integer(bytearray block, int pattern, Py_ssize_t full, Py_ssize_t value)

@cython.locals(raw=bytes, coded=bytes)
cpdef _write_string(bytearray block, str text, bint compresses)
