// File: device/collective_backend.h (internal)
// The c10d backend that carries a device's tensors over links of its own. It usually comes from a
// module, because its libraries are not on every machine.
//
// Thread rule: the same as for c10d's backends.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace hasten {

struct CollectiveSettings {
  c10::intrusive_ptr<c10d::Store> store;
  std::int64_t rank, size;
  at::Device device;
  std::chrono::milliseconds timeout;
};

class CollectiveBackend {
 public:
  CollectiveBackend(const CollectiveBackend&) = delete;
  CollectiveBackend& operator=(const CollectiveBackend&) = delete;

  // The name in HASTEN_PROCESS_GROUP_BACKEND.
  virtual std::string name() const = 0;
  virtual c10d::ProcessGroup::BackendType type() const = 0;
  // If true, a group uses the backend if all of its ranks can create it. If false, a group uses it
  // only if it is named, because the device was opened either for it or for Gloo.
  virtual bool is_negotiated() const { return false; }

  // For a backend that is negotiated: returns why this process cannot create it, or an empty text
  // if it can.
  virtual std::string missing_reason() const { return ""; }
  // Throws if encryption between machines is asked for and the backend does not encrypt.
  virtual void check_encryption(bool /*must_encrypt*/) const {}
  // Throws an error because the group names the backend, and a rank, not necessarily this one,
  // cannot create it.
  virtual void throw_missing(const std::string& /*missing_here*/) const {}

  // Creates the backend. The device must already be open, in this group's job.
  virtual c10::intrusive_ptr<c10d::Backend> make(const CollectiveSettings& settings) const = 0;

 protected:
  CollectiveBackend() = default;
  ~CollectiveBackend() = default;
};

}  // namespace hasten
