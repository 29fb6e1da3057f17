// File: models/running_module.h (internal)
// The module whose forward pass runs on this thread. It is for models that know this although they
// do not call modules: the interpreter of exported programs has the path of each operator's module.
//
//   const RunningModule running("encoder.layer.0");   // until the end of the block
//   if (const std::string* path = RunningModule::path()) std::cout << *path;
//
// An anatomy assigns operations to this module. Thread rule: each thread has its own.
#pragma once

#include <string>
#include <utility>

namespace hasten {

class RunningModule {
 public:
  // The path must outlive this object. An empty path is the model itself.
  explicit RunningModule(const std::string& path) : outer_(std::exchange(current_, &path)) {}
  RunningModule(const RunningModule&) = delete;
  RunningModule& operator=(const RunningModule&) = delete;
  ~RunningModule() { current_ = outer_; }

  // Returns null if no such object exists on this thread.
  static const std::string* path() { return current_; }

 private:
  inline static thread_local const std::string* current_ = nullptr;
  const std::string* outer_;
};

}  // namespace hasten
