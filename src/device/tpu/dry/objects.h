// File: device/tpu/dry/objects.h (internal)
// What stands behind PJRT's handles here.
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

#include "device/tpu/dry/account.h"
#include "device/tpu/dry/compiler.h"
#include "device/tpu/dry/pjrt.h"

struct PJRT_Error {
  PJRT_Error_Code code;
  std::string message;
};

// Nothing is computed, so everything is ready at once.
struct PJRT_Event {};

struct PJRT_DeviceDescription {
  hasten::dry_tpu::DeviceFacts facts;
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
  hasten::dry_tpu::Account account;
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
  bool laid_out =
      false;  // bytes are the compiler's; else without padding, until a program reads it
  bool deleted = false;
  std::int64_t born = 0;  // World::forward_passes then
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

struct World {
  World();
  Compiler compiler;
  PJRT_Client client;
  std::mutex mutex;  // of all that follows, and of the devices' accounts
  std::set<PJRT_Buffer*> live;
  std::map<TypeAndSizes, std::int64_t> laid_out;  // bytes, as programs read such tensors
  std::int64_t forward_passes = 0;                // begun so far
  std::int64_t activations = 0;  // of the last: what came since and was there at its backward pass
  std::int64_t runs = 0, reads = 0;
  std::int64_t unlike = 0;  // programs whose arguments do not add up to the compiler's sum
};

// Made at first use. Throws Failure.
World& world();

// The entry of a table for a function that throws.
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

// Each puts its functions into the table.
void fill_client(PJRT_Api& api);
void fill_buffers(PJRT_Api& api);
void fill_programs(PJRT_Api& api);

PJRT_Buffer* new_buffer(PJRT_Device* device, PJRT_Buffer_Type type,
                        std::vector<std::int64_t> dimensions);

}  // namespace hasten::dry_tpu

#define HASTEN_ENTRY(name, function) api.name = hasten::dry_tpu::Entry<function>::call
