// Stands in for libcudnn.so.9 where there is no GPU: of all of it libtorch_python asks for the
// version.
extern "C" int cudnnGetProperty(int /*which*/, int* value) {
  *value = 0;
  return 1;  // CUDNN_STATUS_NOT_INITIALIZED
}
