// Stands in for libcufile.so.0 where there is no GPU. What libtorch_python wants of it is in the
// stand-in for libtorch_cuda.so.
