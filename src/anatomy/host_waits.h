// File: anatomy/host_waits.h (internal)
// Counts how often the host waits until a GPU has finished the work that was submitted before. Such
// a wait leaves the GPU idle until the host has submitted more work.
//
//   const std::int64_t before = DryGpu::active()->waits().total();
//   optimizer.step();
//   CHECK(DryGpu::active()->waits().total() == before);
//
// The host waits in a call that reads a number (item), that compares tensors, or that returns a
// result with a size that depends on values. It also waits in a blocking copy between host and GPU,
// and if the program asks for it. Source: LibTorch's Copy.cu, CUDAScalar.cu and Nonzero.cu. Thread
// rule: any thread.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace hasten::anatomy {

class HostWaits {
 public:
  // Counts a call of an operator if the host waits in it.
  void add_call(std::string_view name, c10::ArrayRef<c10::IValue> arguments);
  // Counts a wait that the program asks for.
  void add(std::string_view what);

  std::int64_t total() const;
  // Returns the number of waits by their cause: the operator's name or the direction of a copy.
  std::map<std::string, std::int64_t> by_cause() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::int64_t> causes_;
};

}  // namespace hasten::anatomy
