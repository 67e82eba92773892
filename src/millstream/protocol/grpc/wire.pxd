# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

@cython.locals(written=bytearray)
cpdef bytes encode_varint(unsigned long long number)

cpdef bytes bytes_field(bytes before, bytes value)

cpdef bytes number_field(bytes before, object number)
