// The stub of libcudnn.so.9 for a machine without a GPU. libtorch_python uses only its version.
extern "C" int cudnnGetProperty(int /*which*/, int* value) {
  *value = 0;
  return 1;  // CUDNN_STATUS_NOT_INITIALIZED
}
