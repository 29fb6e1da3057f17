// What needs Python's headers to compile and its library to run: torch_tpu, in an interpreter. A
// shared module that device/tpu.cpp loads where a TPU is asked for, so that hasten itself needs no
// Python.
#include <Python.h>
// Python's header goes first, by its own rule.
#include <ATen/ATen.h>
#include <dlfcn.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/version.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "device/tpu/interpreter.h"
#include "device/tpu/open_tpu.h"
#include "device/tpu/program.h"
#include "hasten/base/error.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

using torch::autograd::Engine;

// The folder of the LibTorch of this process.
fs::path libtorch() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&Engine::get_base_engine), &info) == 0) return {};
  return fs::canonical(info.dli_fname).parent_path().parent_path();
}

// Python's torch has to be that very LibTorch, or there would be two of them.
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

// PyPI's libtorch_python names CUDA's libraries, which a TPU machine does not have, and of them
// uses nothing without a GPU: stand-ins take their names first. With LibTorch's CPU build there is
// nothing to stand in for.
void stand_in_for_cuda(const fs::path& libraries) {
  if (!fs::exists(libraries / "libtorch_cuda.so")) return;
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD) != nullptr)
    return;  // the real one is here
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&hasten_tpu_open), &info) == 0) return;
  const fs::path stand_ins = fs::canonical(info.dli_fname).parent_path() / "hasten_no_cuda";
  constexpr int global = RTLD_NOW | RTLD_GLOBAL;
  for (const char* name : {"libc10.so", "libtorch_cpu.so", "libc10_cuda.so"})
    open_library(libraries / name, global);
  for (const char* name : {"libcufile.so.0", "libcudnn.so.9", "libtorch_cuda.so"})
    open_library(stand_ins / name, global);
}

// torch_tpu ends the process where it cannot load the plugin that the user names.
void check_plugin(const char* path) {
  if (path == nullptr) return;
  if (dlsym(open_library(path, RTLD_LAZY | RTLD_LOCAL), "GetPjrtApi") != nullptr) return;
  throw IoError("device.tpu-failed", {.what = "the plugin of TPU_LIBRARY_PATH",
                                      .got = std::string(path) + " without GetPjrtApi",
                                      .hint = "name libtpu.so, or unset it"});
}

bool on_google_cloud() {
  std::ifstream file("/sys/class/dmi/id/product_name");
  std::string name;
  return std::getline(file, name) && name.find("Google") != std::string::npos;
}

void set_environment() {
  const auto unless_set = [](const char* name, const char* value) { setenv(name, value, 0); };
  // Elsewhere libtpu asks Google Cloud's metadata server, 30 times a question.
  if (!on_google_cloud()) {
    unless_set("TPU_SKIP_MDS_QUERY", "1");
    unless_set("TPU_WORKER_HOSTNAMES", "localhost");
    unless_set("TPU_WORKER_ID", "0");
  }
  setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0", 1);  // hasten calls it itself
  unless_set("TF_CPP_MIN_LOG_LEVEL", "1");          // no lines about what goes well
  // Else a collective's program has in it the views that lead to its tensors, and is another one on
  // a rank that has another view: what TPUs run together has to be one program.
  unless_set("TORCH_TPU_INTERNAL_MATERIALIZE_COLLECTIVE_TENSORS", "1");
}

// LibTorch starts its engine's threads, one a device, once in a process: at its first backward
// pass.
void start_usual_threads() { at::ones({1}).requires_grad_().backward(); }

// Importing torch has put its own engine in the place of LibTorch's, which asks for the
// interpreter's lock in every thread; and the engine that was there has no thread for a device that
// came later.
void use_own_engine() {
  struct AnEngine : Engine {
    AnEngine() { start_device_threads(); }
  };
  // Another one at each try to open: that of one that failed has no thread for the TPU. None is
  // deleted, as engines outlive autograd's threads.
  static std::atomic<Engine*> engine = nullptr;
  engine = new AnEngine;
  torch::autograd::set_default_engine_stub([]() -> Engine& { return *engine; });
}

// torch_tpu asks each tensor that it copies for its gradient, and LibTorch warns of that where the
// tensor is no leaf: a line or more for each loss that is read. Of this thread's warnings this one
// is dropped.
class WithoutGradWarnings : public c10::WarningHandler {
 public:
  explicit WithoutGradWarnings(c10::WarningHandler* others) : others_(others) {}
  void process(const c10::Warning& warning) override {
    if (warning.msg().find("The .grad attribute of a Tensor that is not a leaf") == 0) return;
    others_->process(warning);
  }

 private:
  c10::WarningHandler* others_;
};

void drop_grad_warnings() {
  static WithoutGradWarnings& handler =
      *new WithoutGradWarnings(c10::WarningUtils::get_warning_handler());
  c10::WarningUtils::set_warning_handler(&handler);
}

void throw_problem(PyObject* tuple) {
  const auto part = [tuple](Py_ssize_t i) { return text_of(PyTuple_GetItem(tuple, i)); };
  throw IoError(part(0), {.what = part(1), .got = part(2), .expected = part(3), .hint = part(4)});
}

pid_t opened_by = 0;

PythonObject& program() {
  static PythonObject& module = *new PythonObject(module_of("hasten_tpu", kProgram));
  return module;
}

// torch_tpu counts on Python's own exit to end its threads. In the process that opened it, once.
void stop() {
  static std::atomic<bool> stopped = false;
  if (getpid() != opened_by || stopped.exchange(true)) return;
  const PythonLock lock;
  try {
    call(program(), "stop", {});
  } catch (const std::exception&) {  // the process ends anyway
  }
}

// Compilers that are still at work need what exit() destroys, and what they made last goes first.
// Only destructors of the main thread's own objects come before.
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

std::int64_t start(const std::string& folder, std::int64_t together) {
  const bool needs_libtpu = std::getenv("TPU_LIBRARY_PATH") == nullptr;
  const PythonObject missing =
      call(program(), "check", {folder, TORCH_VERSION, needs_libtpu ? "libtpu" : ""});
  if (PyTuple_Check(missing.get())) throw_problem(missing.get());
  const PythonObject count = call(program(), "start", {TORCH_VERSION, std::to_string(together)});
  if (PyTuple_Check(count.get())) throw_problem(count.get());
  return PyLong_AsLongLong(count.get());
}

}  // namespace
}  // namespace hasten

extern "C" std::int64_t hasten_tpu_open(std::int64_t together) {
  using namespace hasten;
  const fs::path folder = libtorch();
  check_libtorch(folder);
  start_usual_threads();
  set_environment();
  check_plugin(std::getenv("TPU_LIBRARY_PATH"));
  start_interpreter();
  struct Leave {  // also where something is thrown
    ~Leave() {
      use_own_engine();
      leave_interpreter();
    }
  } const leave;
  stand_in_for_cuda(folder / "lib");
  const std::int64_t count = start(folder.parent_path().string(), together);
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
