// File: device/tpu/interpreter.h (internal)
// CPython inside of this process, started once and never ended.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>

struct _object;

namespace hasten {

// A reference to an object of Python's.
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

// Starts the interpreter, where the process has none, with the lock held by this thread.
void start_interpreter();
// Lets go of the lock that start_interpreter took.
void leave_interpreter();

// A module made of a text. The lock is held for this and for what follows.
PythonObject module_of(const char* name, const char* text);
// Throws IoError "device.tpu-failed" where the function raises.
PythonObject call(const PythonObject& module, const char* function,
                  std::initializer_list<std::string> arguments);
std::string text_of(_object* text);

// The lock, for a thread that has none.
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
