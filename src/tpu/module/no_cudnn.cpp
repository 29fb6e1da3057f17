// The stand-in for libcudnn.so.9 on a machine without a GPU. libtorch_python uses nothing of it but
// the version.
extern "C" int cudnnGetProperty(int /*which*/, int* value) {
  *value = 0;
  return 1;  // CUDNN_STATUS_NOT_INITIALIZED
}
