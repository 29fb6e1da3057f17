// The stub of libcufile.so.0 for a machine without a GPU. It is empty, because the stub of
// libtorch_cuda.so has the symbols that libtorch_python needs.
