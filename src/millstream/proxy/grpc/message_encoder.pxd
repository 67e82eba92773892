# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython


cpdef bytes md5_text(bytes body)


cdef class MessageEncoder:
    cdef bytes _host_text, _topic
    cdef object _host, _space

    @cython.locals(text=bytes, message=bytes, receipt=bytes)
    cpdef bytes frame(self, object popped, bytes body=*)

    @cython.locals(
        held=dict, message_id=bytes, born_host=bytes, store_host=bytes, queue_id=object, is_bare=bint, is_plain=bint, system=bytes, user=bytes,
    )
    cpdef bytes message(
        self, object stored, long long delivery_attempt=*, bytes receipt=*, bytes invisible=*, bytes body=*
    )

    @cython.locals(held=dict, written=bytes)
    cdef bytes _rare(self, object stored)

cdef list _user_properties(dict held)

cdef bytes _tag_and_keys(object stored)

cdef bytes _due_time(dict held)
