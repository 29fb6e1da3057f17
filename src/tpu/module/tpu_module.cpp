// Runs torch_tpu in a Python interpreter. It needs Python's headers to compile and Python's library
// to run, which hasten itself does not need. So it is a shared module, which
// tpu/device/opened_tpu.cpp loads when a TPU is requested.
#include <Python.h>
// Python's documentation requires its header to be the first.
#include <ATen/ATen.h>
#include <dlfcn.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/version.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>

#include "base/first_line.h"
#include "hasten/base/error.h"
#include "program.py.h"
#include "tpu/module/open_tpu.h"
#include "tpu/module/python_interpreter.h"
#include "tpu/module/scoped_variables.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

using torch::autograd::Engine;

// Returns the folder of this process's LibTorch.
fs::path libtorch() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&Engine::get_base_engine), &info) == 0) return {};
  return fs::canonical(info.dli_fname).parent_path().parent_path();
}

// Checks that Python's torch is this process's LibTorch. Otherwise two copies would be loaded.
void check_libtorch(const fs::path& folder) {
  for (const fs::path& file : {folder / "__init__.py", folder / "lib/libtorch_python.so"}) {
    if (fs::exists(file)) continue;
    throw IoError("device.tpu-package", {.what = "Python's part of LibTorch " TORCH_VERSION,
                                         .got = "no " + file.string(),
                                         .hint = "build hasten with the LibTorch of PyPI's wheel: "
                                                 "python3 -m pip install torch==" TORCH_VERSION});
  }
}

void* open_library(const fs::path& path, int mode) {
  void* const library = dlopen(path.c_str(), mode);
  if (library == nullptr)
    throw IoError("device.tpu-failed", {.what = "loading a library", .got = dlerror()});
  return library;
}

// PyPI's libtorch_python is linked to CUDA's libraries, which a TPU machine does not have. Without
// a GPU it uses nothing of them, so stubs with their names are loaded first. LibTorch's CPU build
// needs no stubs.
void load_cuda_stubs(const fs::path& libraries) {
  if (!fs::exists(libraries / "libtorch_cuda.so")) return;
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD) != nullptr)
    return;  // the real one is loaded
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&hasten_tpu_open), &info) == 0) return;
  const fs::path stubs = fs::canonical(info.dli_fname).parent_path() / "hasten_no_cuda";
  constexpr int global = RTLD_NOW | RTLD_GLOBAL;
  for (const char* name : {"libc10.so", "libtorch_cpu.so", "libc10_cuda.so"})
    open_library(libraries / name, global);
  for (const char* name : {"libcufile.so.0", "libcudnn.so.9", "libtorch_cuda.so"})
    open_library(stubs / name, global);
}

// Throws if the plugin that the user names cannot be loaded; torch_tpu would end the process.
void check_plugin(const char* path) {
  if (path == nullptr) return;
  if (dlsym(open_library(path, RTLD_LAZY | RTLD_LOCAL), "GetPjrtApi") != nullptr) return;
  throw IoError("device.tpu-failed", {.what = "the plugin of TPU_LIBRARY_PATH",
                                      .got = std::string(path) + ", which has no GetPjrtApi()",
                                      .hint = "set it to libtpu.so's path, or unset it"});
}

bool on_google_cloud() {
  return first_line("/sys/class/dmi/id/product_name").find("Google") != std::string::npos;
}

void set_environment() {
  // An empty path counts as unset. dlopen("") would open this program.
  if (const char* const path = std::getenv("TPU_LIBRARY_PATH"); path != nullptr && *path == '\0')
    unsetenv("TPU_LIBRARY_PATH");
  const auto set_default = [](const char* name, const char* value) { setenv(name, value, 0); };
  // Outside of Google Cloud, libtpu would ask its metadata server 30 times for each value.
  if (!on_google_cloud()) {
    set_default("TPU_SKIP_MDS_QUERY", "1");
    set_default("TPU_WORKER_HOSTNAMES", "localhost");
    set_default("TPU_WORKER_ID", "0");
  }
  setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0", 1);  // hasten loads it itself
  set_default("TF_CPP_MIN_LOG_LEVEL", "1");         // no informational lines
  // Without this, a collective's program contains the views that lead to its tensors, and differs
  // on a rank that has another view. TPUs that run together need the same program.
  set_default("TORCH_TPU_INTERNAL_MATERIALIZE_COLLECTIVE_TENSORS", "1");
}

// Runs a backward pass. The first one in a process starts the threads of LibTorch's engine, one for
// each device.
void start_engine_threads() { at::ones({1}).requires_grad_().backward(); }

// Importing torch has replaced LibTorch's engine with one that takes the interpreter's lock in
// every thread. The engine before it has no thread for a device that was added later.
void install_engine_with_threads() {
  struct EngineWithThreads : Engine {
    EngineWithThreads() { start_device_threads(); }
  };
  // Each attempt to open the TPU makes an engine, because the engine of a failed attempt has no
  // thread for the TPU. None is deleted, because engines outlive autograd's threads.
  static std::atomic<Engine*> engine = nullptr;
  engine = new EngineWithThreads;
  torch::autograd::set_default_engine_stub([]() -> Engine& { return *engine; });
}

// Drops one of this thread's warnings. torch_tpu reads the gradient of each tensor that it copies,
// and LibTorch warns about that if the tensor is not a leaf. That would print at least one line for
// each loss that is read.
class GradWarningFilter : public c10::WarningHandler {
 public:
  explicit GradWarningFilter(c10::WarningHandler* others) : others_(others) {}
  void process(const c10::Warning& warning) override {
    if (warning.msg().find("The .grad attribute of a Tensor that is not a leaf") == 0) return;
    others_->process(warning);
  }

 private:
  c10::WarningHandler* others_;
};

void drop_grad_warnings() {
  static GradWarningFilter& handler =
      *new GradWarningFilter(c10::WarningUtils::get_warning_handler());
  c10::WarningUtils::set_warning_handler(&handler);
}

void throw_problem(PyObject* tuple) {
  const auto part = [tuple](Py_ssize_t i) { return python_text(PyTuple_GetItem(tuple, i)); };
  throw IoError(part(0), {.what = part(1), .got = part(2), .expected = part(3), .hint = part(4)});
}

pid_t opened_by = 0;

PythonObject& program() {
  static PythonObject& module = *new PythonObject(make_module("hasten_tpu", embedded::kProgram));
  return module;
}

// Runs Python's exit functions, which torch_tpu needs to end its threads. Does so once, and only in
// the process that opened the TPU.
void stop() {
  static std::atomic<bool> stopped = false;
  if (getpid() != opened_by || stopped.exchange(true)) return;
  const PythonLock lock;
  try {
    call(program(), "stop", {});
  } catch (const std::exception&) {  // the process ends anyway
  }
}

// Calls stop() at the end of the process, before exit() destroys objects that running compilers
// still need. exit() destroys the newest objects first, and may do so before it calls a handler of
// atexit(). Only destructors of the main thread's thread_local objects run earlier, so one of them
// calls stop().
void stop_at_exit() {
  opened_by = getpid();
  std::atexit(stop);
  struct AtExit {
    ~AtExit() { stop(); }
  };
  if (gettid() == getpid()) {
    static thread_local const AtExit first;
    static_cast<void>(first);
  }
}

std::int64_t start(const std::string& folder, std::int64_t slice_processes) {
  const bool needs_libtpu = std::getenv("TPU_LIBRARY_PATH") == nullptr;
  const PythonObject missing =
      call(program(), "check", {folder, TORCH_VERSION, needs_libtpu ? "libtpu" : ""});
  if (PyTuple_Check(missing.get())) throw_problem(missing.get());
  const PythonObject count =
      call(program(), "start", {TORCH_VERSION, std::to_string(slice_processes)});
  if (PyTuple_Check(count.get())) throw_problem(count.get());
  return PyLong_AsLongLong(count.get());
}

}  // namespace
}  // namespace hasten

extern "C" std::int64_t hasten_tpu_open(std::int64_t slice_processes,
                                        const std::vector<hasten::Variable>& variables) {
  using namespace hasten;
  const ScopedVariables scoped(variables);
  const fs::path folder = libtorch();
  check_libtorch(folder);
  start_engine_threads();
  set_environment();
  check_plugin(std::getenv("TPU_LIBRARY_PATH"));
  start_interpreter();
  struct Cleanup {  // runs also if something is thrown
    ~Cleanup() {
      install_engine_with_threads();
      release_interpreter_lock();
    }
  } const cleanup;
  load_cuda_stubs(folder / "lib");
  const std::int64_t count = start(folder.parent_path().string(), slice_processes);
  drop_grad_warnings();
  stop_at_exit();
  return count;
}

extern "C" std::int64_t hasten_tpu_programs() {
  using namespace hasten;
  const PythonLock lock;
  const PythonObject count = call(program(), "programs", {});
  return PyLong_AsLongLong(count.get());
}
