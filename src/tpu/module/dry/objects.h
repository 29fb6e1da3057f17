// File: tpu/module/dry/objects.h (internal)
// The objects behind PJRT's handles.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tpu/module/dry/device_memory_tracker.h"
#include "tpu/module/dry/pjrt.h"
#include "tpu/module/dry/tpu_compiler.h"

struct PJRT_Error {
  PJRT_Error_Code code;
  std::string message;
};

// Nothing is computed, so every event is ready at once.
struct PJRT_Event {};

struct PJRT_DeviceDescription {
  hasten::dry_tpu::DeviceInfo info;
};

struct PJRT_Memory {
  PJRT_Device* device = nullptr;
  int id = 0;
};

struct PJRT_Device {
  PJRT_DeviceDescription description;
  PJRT_Memory memory;
  PJRT_Memory* memories[1] = {&memory};
  PJRT_Device* self[1] = {this};
  int index = 0;
  hasten::dry_tpu::DeviceMemoryTracker device_memory_tracker;
};

struct PJRT_TopologyDescription {
  std::vector<PJRT_DeviceDescription*> devices;
};

struct PJRT_Client {
  std::vector<std::unique_ptr<PJRT_Device>> owned;
  std::vector<PJRT_Device*> devices;
  std::vector<PJRT_Memory*> memories;
  PJRT_TopologyDescription topology;
};

struct PJRT_Buffer {
  PJRT_Buffer_Type type = PJRT_Buffer_Type_INVALID;
  std::vector<std::int64_t> dimensions;
  PJRT_Device* device = nullptr;
  std::int64_t bytes = 0;
  // True if `bytes` comes from the compiler. Until a program reads the tensor, `bytes` is the size
  // without padding.
  bool has_layout = false;
  bool deleted = false;
  std::int64_t made_in_pass = 0;  // PluginState::forward_passes when it was created
};

struct PJRT_Executable {
  std::shared_ptr<const hasten::dry_tpu::Program> program;
  std::vector<PJRT_Buffer_Type> types;
  std::vector<std::int64_t> dimensions;
  std::vector<std::size_t> ranks;
  std::vector<const char*> memory_kinds;
  std::vector<std::size_t> memory_kind_sizes;
  std::string fingerprint;
};

struct PJRT_LoadedExecutable {
  std::shared_ptr<const hasten::dry_tpu::Program> program;
  std::vector<PJRT_Device*> devices;
  std::string assignment;  // DeviceAssignmentProto
  bool deleted = false;
};

namespace hasten::dry_tpu {

constexpr char kMemoryKind[] = "device";

using TypeAndSizes = std::pair<PJRT_Buffer_Type, std::vector<std::int64_t>>;

struct PluginState {
  PluginState();
  Compiler compiler;
  PJRT_Client client;
  std::mutex mutex;  // protects all members below, and the devices' memory trackers
  std::set<PJRT_Buffer*> live;
  // The bytes that tensors of a type and sizes take when programs read them.
  std::map<TypeAndSizes, std::int64_t> bytes_by_type;
  std::int64_t forward_passes = 0;  // the number of passes that have begun
  // The bytes of tensors that were created in the last forward pass and existed when its backward
  // pass began.
  std::int64_t activations = 0;
  // The forward pass to which `activations` belongs. Its backward phase can begin several times,
  // because steps during the backward pass interrupt it.
  std::int64_t measured_pass = 0;
  std::int64_t runs = 0, reads = 0;
  std::int64_t mismatched_runs = 0;  // runs whose arguments do not have the compiler's sum
};

// Returns the only PluginState of the process, which the first call creates. Throws Failure.
PluginState& plugin_state();

// The entry in PJRT's table for a function that may throw. It turns exceptions into PJRT's errors.
template <auto function>
struct Entry;
template <class Args, void (*function)(Args&)>
struct Entry<function> {
  static PJRT_Error* call(Args* args) noexcept {
    try {
      function(*args);
      return nullptr;
    } catch (const Failure& failure) {
      return new PJRT_Error{failure.code, failure.what()};
    } catch (const std::exception& error) {
      return new PJRT_Error{PJRT_Error_Code_INTERNAL, error.what()};
    }
  }
};

// Each of these functions writes its entries into the table.
void fill_client(PJRT_Api& api);
void fill_buffers(PJRT_Api& api);
void fill_programs(PJRT_Api& api);

// Creates a tensor and adds it to the device's memory tracker. Locks the mutex.
PJRT_Buffer* new_buffer(PJRT_Device* device, PJRT_Buffer_Type type,
                        std::vector<std::int64_t> dimensions);

}  // namespace hasten::dry_tpu

#define HASTEN_ENTRY(name, function) api.name = hasten::dry_tpu::Entry<function>::call
