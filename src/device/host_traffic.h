// File: device/host_traffic.h (internal)
// While an object exists, counts the bytes that techniques copy between a device and host memory,
// so that a prediction knows how long its copies take. Copies of batches are not counted.
//
//   const HostTraffic traffic;
//   estimate(options);                                    // a dry run
//   traffic.bytes(HostTraffic::Purpose::activations).to_host;
//
// Thread rule: one object at a time in a process; any thread may copy.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <cstdint>

namespace hasten {

class HostTraffic {
 public:
  enum class Purpose { activations, optimizer_states };
  struct Bytes {
    std::int64_t to_host = 0, to_device = 0;
  };

  HostTraffic();
  HostTraffic(const HostTraffic&) = delete;
  HostTraffic& operator=(const HostTraffic&) = delete;
  ~HostTraffic();

  Bytes bytes(Purpose purpose) const;

  // Both count a tensor that is copied, if an object exists.
  static void count_to_host(Purpose purpose, const at::Tensor& copied);
  static void count_to_device(Purpose purpose, const at::Tensor& copied);

 private:
  struct Counters {
    std::atomic<std::int64_t> to_host = 0, to_device = 0;
  };
  std::array<Counters, 2> counters_;
};

}  // namespace hasten
