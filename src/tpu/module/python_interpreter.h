// File: tpu/module/python_interpreter.h (internal)
// CPython inside this process, started once and never ended. Thread rule: the calling thread holds
// the interpreter's lock, except for start_interpreter and PythonLock, which take it.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>

struct _object;

namespace hasten {

// Owns a reference to a Python object.
class PythonObject {
 public:
  explicit PythonObject(_object* owned) : object_(owned) {}
  PythonObject(PythonObject&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  PythonObject(const PythonObject&) = delete;
  PythonObject& operator=(const PythonObject&) = delete;
  ~PythonObject();
  _object* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  _object* object_;
};

// Starts the interpreter, unless the process has one, and takes its lock. Throws IoError
// "device.tpu-failed".
void start_interpreter();
// Releases the lock that start_interpreter took.
void release_interpreter_lock();

// Makes a module `name` from the Python program `text`. Throws IoError "device.tpu-failed".
PythonObject make_module(const char* name, const char* text);
// Throws IoError "device.tpu-failed" if the function raises.
PythonObject call(const PythonObject& module, const char* function,
                  std::initializer_list<std::string> arguments);
std::string python_text(_object* text);

// Holds the interpreter's lock as long as it lives, for a thread that does not have it.
class PythonLock {
 public:
  PythonLock();
  PythonLock(const PythonLock&) = delete;
  PythonLock& operator=(const PythonLock&) = delete;
  ~PythonLock();

 private:
  int state_;
};

}  // namespace hasten
