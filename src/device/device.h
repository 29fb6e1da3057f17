// File: device/device.h (internal)
// The differences between the devices that a model is trained on. The rest of the library uses the
// Device of a tensor or of a process, and never checks which kind of device it is.
//
//   if (device_of(parameter.device()).traits().defers_scalar_reads) ...
//   const Device& device = choose_device({.environment = config::whole_environment()});
//   const Placement placement = device.place(worker, CollectiveChoice::automatic);
//
// Facts are data (DeviceTraits), actions are virtual functions. The defaults of both describe a
// device that LibTorch itself has, so that a new device states only what differs. docs/design/019
// lists the files of a new device.
//
// Thread rule: any thread; devices are never destroyed.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hasten/launch/worker.h"
#include "hasten/options/detail/environment.h"

namespace hasten {

class CollectiveBackend;
struct GraphSupport;

// The kernel that hasten::AdamW uses.
enum class AdamWKernel {
  hasten,                   // hasten's own, which runs on the CPU
  fused,                    // LibTorch's fused kernel, which also scales the gradients
  fused_without_gradscale,  // the same kernel; hasten scales the gradients first
};

struct DeviceTraits {
  // LibTorch's own modules, threads and builds know the device. If false, a library adds it to
  // LibTorch while the program runs, and opening it takes seconds.
  bool is_built_in = true;

  // Reading a number waits for all operations that were submitted before, so a training step keeps
  // its numbers on the device until they are needed.
  bool defers_scalar_reads = false;
  // Each new shape is compiled, so batches keep one shape and padding is removed on the host.
  bool needs_static_shapes = false;
  // A collective is a compiled program, together with the operations that produce its input. All
  // ranks have to run the same programs in the same order, which two threads cannot ensure.
  bool compiles_collectives = false;
  // Gloo cannot read the device's tensors, so they are copied to host memory first.
  bool needs_host_staging = false;

  // Has 64-bit floating-point numbers, in which sums on the device are kept, as on the host.
  bool has_double = true;
  bool has_sparse_tensors = true;
  // data_ptr() identifies the place of a tensor. If false, only storages and offsets distinguish
  // tensors.
  bool has_addresses = true;
  // Has a kernel for aten::linear, which other devices compose of other operators.
  bool has_linear_kernel = false;
  AdamWKernel adamw = AdamWKernel::fused;

  // Has no fp16. Accelerate uses this name for the device's 16-bit type, bfloat16.
  bool takes_fp16_as_bf16 = false;
  // With bf16, double numbers become bfloat16, or float with downcast_bf16.
  bool narrows_doubles_with_bf16 = false;
  // Metrics in bfloat16 are gathered in float, because its 8 bits are too few for a metric.
  bool gathers_bf16_as_float = false;

  // Products are fastest if each row of their matrices begins at a multiple of this number of
  // bytes.
  std::int64_t product_alignment = 1;
  // The approximate number of bytes of the logits that ops::linear_cross_entropy holds at a time.
  std::int64_t bytes_of_logits = 64 << 20;

  // The allocator reports every allocation to LibTorch's observers.
  bool reports_allocations = true;
  // A caching allocator reserves the device's memory, in addition to a context.
  bool has_reserved_memory = false;
  // The allocator rounds sizes up to multiples of this number of bytes, or further.
  std::int64_t allocation_unit = 1;
  // Copies from pinned host memory are faster.
  bool copies_from_pinned_memory = false;
  // Has streams, so that copies to host memory run while the device computes.
  bool copies_in_background = false;
  // A compiler merges operations that compute the same result, so recomputation saves no memory.
  bool merges_equal_operations = false;
  // A dry run can simulate the device's allocator and kernels.
  bool can_be_simulated = false;
};

// LibTorch's operators for attention of rows that have different lengths and no padding
// (ops/packed_attention.h).
enum class PackedAttention { none, flash, efficient };

// The settings that determine the device of a process.
struct DeviceRequest {
  bool cpu = false;
  // The name of the required device, such as "tpu". If it is empty, the best available device is
  // chosen.
  std::string required = "";
  // Considers only devices that LibTorch itself has, which need not be opened.
  bool only_built_in = false;
  config::Environment environment = {};
};

// How tensors of a device travel between ranks: `own` uses the device's own links, `host` uses Gloo
// through host memory.
enum class CollectiveChoice { automatic, own, host };

struct Placement {
  at::Device device = at::kCPU;
  // If this is `automatic`, the ranks of the group decide together.
  CollectiveChoice collectives = CollectiveChoice::automatic;
};

// Figures of a device's memory, in bytes. They include all processes.
struct MemoryFigures {
  std::optional<std::int64_t> used = {}, total = {};
  std::string missing = "";  // why there are no figures, for a note in a report; may be empty
};

// The bytes of this process's tensors on a device, as LibTorch's allocator counts them.
struct AllocatedBytes {
  std::int64_t current = 0, peak = 0;
};

struct NamedGenerator {
  std::string name;  // its name in a checkpoint, such as "cuda.0"
  at::Generator generator;
};

class Device {
 public:
  Device(at::DeviceType type, DeviceTraits traits) : type_(type), traits_(traits) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  at::DeviceType type() const { return type_; }
  const DeviceTraits& traits() const { return traits_; }

  // Returns whether this process can use the device. Opens nothing.
  virtual bool is_available() const { return false; }
  // Returns whether the program uses a device that was added to LibTorch. False for other devices.
  virtual bool is_open() const { return false; }
  // Returns whether a dry run simulates the device in this process.
  virtual bool is_simulated() const { return false; }
  // Returns which devices of this type have appeared since the process began: 0 for none, or a
  // number below kAppearances that differs for different devices. The autograd engine needs a
  // thread for them.
  static constexpr std::size_t kAppearances = 3;
  virtual std::size_t appearance() const { return is_open() ? 1 : 0; }
  // Returns whether the device serves the request. Devices are asked in order of preference.
  virtual bool is_chosen(const DeviceRequest&) const { return is_available(); }
  // Returns the device of one process of a job, and opens it if necessary. May throw.
  virtual Placement place(const Worker&, CollectiveChoice choice) const {
    return {.device = at::Device(type_), .collectives = choice};
  }

  // Returns the backend for collectives over the device's own links, or null if it has none.
  virtual const CollectiveBackend* collectives() const { return nullptr; }

  // Returns how many programs have been compiled for this process so far.
  virtual std::int64_t compiled_programs() const { return 0; }

  // Returns whether the device has kernels of hasten's own for numbers of this type, which the
  // operators of ops/ use instead of LibTorch's.
  virtual bool has_kernels(at::ScalarType) const { return false; }

  // Returns the operator that computes attention of packed rows with heads of this size.
  virtual PackedAttention packed_attention(at::ScalarType, std::int64_t /*head_size*/,
                                           int /*index*/) const {
    return PackedAttention::none;
  }

  // Returns a recorder of graphs of operations (device/graph_recorder.h), or why there is none.
  virtual GraphSupport graphs(int index) const;

  // Sets for this process whether products of float numbers on the device may round their factors
  // to TF32, which has 10 bits after the point. Returns false if the device has no TF32.
  virtual bool set_tf32(int /*index*/, bool /*is_on*/) const { return false; }

  // Returns the name that the vendor's driver gives the device, such as "NVIDIA H200". "" if it is
  // not known.
  virtual std::string driver_name(int /*index*/) const { return ""; }
  virtual MemoryFigures memory(int) const { return {}; }
  // Returns whether LibTorch's profiler records the kernels of the device and the calls of its
  // runtime.
  virtual bool is_profiled() const { return false; }
  // Returns cached, unused memory to the driver.
  virtual void empty_cache() const {}
  // Returns the bytes of this process's tensors, or nothing if the device's allocator does not
  // count.
  virtual std::optional<AllocatedBytes> allocated(int) const { return std::nullopt; }
  // Begins a new peak for allocated().
  virtual void reset_allocated_peak(int) const {}

  // Returns the generators of random numbers that a checkpoint keeps.
  virtual std::vector<NamedGenerator> generators() const { return {}; }

  // Throws UsageError if the process has used the device in a way that does not survive a fork.
  virtual void check_fork() const {}

 protected:
  ~Device() = default;

 private:
  at::DeviceType type_;
  DeviceTraits traits_;
};

// All devices that hasten knows, the preferred ones last.
const std::vector<const Device*>& all_devices();
// Returns the Device of a tensor's device. Devices that hasten does not know have the defaults.
const Device& device_of(at::Device device);
// While it exists, device_of() returns another Device for its type. It is for tests of behaviour
// that depends on the device. Thread rule: while no other thread uses a device of this type.
class [[nodiscard]] DeviceReplacement {
 public:
  explicit DeviceReplacement(const Device& device);
  DeviceReplacement(const DeviceReplacement&) = delete;
  DeviceReplacement& operator=(const DeviceReplacement&) = delete;
  ~DeviceReplacement();

 private:
  const Device* const before_;
};
// Returns the Device that serves the request; the CPU serves every request.
const Device& choose_device(const DeviceRequest& request);

// Blocks until the device has completed everything that this process has submitted.
void synchronize(at::Device device);
// Returns whether a device is open that a library has added to LibTorch.
bool is_added_device_open();
// Returns a number that differs if other devices have appeared since the process began, of any
// type.
std::size_t device_appearances();
// Returns whether an available device copies faster from pinned host memory.
bool is_pinning_useful();

}  // namespace hasten
