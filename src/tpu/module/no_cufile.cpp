// The stand-in for libcufile.so.0 on a machine without a GPU. It is empty, because the stand-in for
// libtorch_cuda.so has what libtorch_python needs of it.
