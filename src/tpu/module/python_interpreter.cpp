#include <Python.h>
// Python's documentation requires its header to be the first.
#include "tpu/module/python_interpreter.h"

#include <dlfcn.h>

#include <cstdlib>
#include <optional>
#include <utility>

#include "hasten/base/error.h"

namespace hasten {
namespace {

[[noreturn]] void throw_failed(const std::string& what, const std::string& got) {
  throw IoError("device.tpu-failed", {.what = what, .got = got});
}

// Returns the text of the exception that was raised, and clears it.
std::string take_python_error() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  const PythonObject owned[] = {PythonObject(type), PythonObject(value), PythonObject(trace)};
  const PythonObject text(value == nullptr ? nullptr : PyObject_Str(value));
  PyErr_Clear();
  return text ? python_text(text.get()) : "an unknown Python error";
}

// Makes the interpreter's library global, because extensions look up its functions in the global
// scope, which this module is not in.
void make_library_global() {
  Dl_info info{};
  const auto* const inside = reinterpret_cast<const void*>(&Py_InitializeFromConfig);
  if (dladdr(inside, &info) == 0 ||
      dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD) == nullptr)
    throw_failed("loading Python's library", "no library that contains its own functions");
}

// Returns the Python of the active virtual environment, or else the Python that this module was
// built with. It never returns a Python just because it is the first in PATH.
std::string executable() {
  const char* const active = std::getenv("VIRTUAL_ENV");
  return active != nullptr && *active != '\0' ? std::string(active) + "/bin/python3"
                                              : HASTEN_PYTHON;
}

void check(const PyStatus& status, PyConfig& config) {
  if (!PyStatus_Exception(status)) return;
  PyConfig_Clear(&config);
  throw_failed("starting Python", status.err_msg == nullptr ? "an unknown error" : status.err_msg);
}

// The caller's lock state, if the process already had an interpreter.
std::optional<PyGILState_STATE>& previous_lock_state() {
  static std::optional<PyGILState_STATE> state;
  return state;
}

}  // namespace

PythonObject::~PythonObject() { Py_XDECREF(object_); }

void start_interpreter() {
  make_library_global();
  if (Py_IsInitialized()) {
    previous_lock_state() = PyGILState_Ensure();
    return;
  }
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  config.parse_argv = 0;
  config.install_signal_handlers = 0;  // the program handles Ctrl-C
  check(PyConfig_SetBytesString(&config, &config.program_name, executable().c_str()), config);
  check(Py_InitializeFromConfig(&config), config);
  PyConfig_Clear(&config);
}

void release_interpreter_lock() {
  if (previous_lock_state()) {
    PyGILState_Release(*std::exchange(previous_lock_state(), std::nullopt));
  } else {
    PyEval_SaveThread();
  }
}

PythonObject make_module(const char* name, const char* text) {
  const PythonObject code(Py_CompileString(text, name, Py_file_input));
  if (!code) throw_failed("loading hasten's Python program", take_python_error());
  PythonObject module(PyImport_ExecCodeModule(name, code.get()));
  if (!module) throw_failed("loading hasten's Python program", take_python_error());
  return module;
}

PythonObject call(const PythonObject& module, const char* function,
                  std::initializer_list<std::string> arguments) {
  const PythonObject tuple(PyTuple_New(static_cast<Py_ssize_t>(arguments.size())));
  if (!tuple) throw_failed(function, take_python_error());
  Py_ssize_t place = 0;
  for (const std::string& argument : arguments) {
    PyObject* const text = PyUnicode_DecodeFSDefault(argument.c_str());
    if (text == nullptr) throw_failed(function, take_python_error());
    PyTuple_SetItem(tuple.get(), place++, text);  // takes ownership
  }
  const PythonObject callable(PyObject_GetAttrString(module.get(), function));
  PythonObject result(callable ? PyObject_CallObject(callable.get(), tuple.get()) : nullptr);
  if (!result)
    throw_failed("hasten's Python function " + std::string(function), take_python_error());
  return result;
}

std::string python_text(PyObject* text) {
  const char* const bytes = PyUnicode_AsUTF8(text);
  if (bytes != nullptr) return bytes;
  PyErr_Clear();
  return "(no text)";
}

PythonLock::PythonLock() : state_(PyGILState_Ensure()) {}
PythonLock::~PythonLock() { PyGILState_Release(static_cast<PyGILState_STATE>(state_)); }

}  // namespace hasten
