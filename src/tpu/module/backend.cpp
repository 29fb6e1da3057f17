// Creates torch_tpu's c10d backend through Python, because torch_tpu offers it only there. It is
// part of the module libhasten_tpu.so, which tpu/device/tpu_dist.cpp loads.
#include <pybind11/chrono.h>
#include <pybind11/pybind11.h>

#include "base/internal_api.h"
#include "device/collective_backend.h"
#include "hasten/base/error.h"
#include "tpu/module/python_interpreter.h"

// c10d's objects count their references themselves.
PYBIND11_DECLARE_HOLDER_TYPE(Object, c10::intrusive_ptr<Object>, true)

extern "C" HASTEN_INTERNAL_API c10d::Backend* hasten_tpu_dist(
    const hasten::CollectiveSettings& settings) {
  namespace py = pybind11;
  using namespace hasten;
  const PythonLock lock;
  try {
    const py::module_ tpu = py::module_::import("torch_tpu._internal.distributed.tpu_distributed");
    const py::object made = tpu.attr("create_process_group")(settings.store, settings.rank,
                                                             settings.size, settings.timeout);
    return made.cast<c10::intrusive_ptr<c10d::Backend>>().release();
  } catch (const py::error_already_set& error) {
    throw IoError(
        "device.tpu-failed",
        {.what = "the process group tpu_dist",
         .got = error.what(),
         .hint = "set HASTEN_PROCESS_GROUP_BACKEND=gloo to exchange through the host, which is "
                 "slower"});
  }
}
