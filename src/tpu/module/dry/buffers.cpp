// PJRT's functions for tensors, which have no values, and for events.
#include <algorithm>

#include "tpu/module/dry/objects.h"

namespace hasten::dry_tpu {
namespace {

std::int64_t dense_bytes_of(const PJRT_Buffer& buffer) {
  return dense_bytes(buffer.type, buffer.dimensions);
}

// The caller holds the lock.
void mark_deleted(PJRT_Buffer& buffer) {
  if (buffer.deleted) return;
  buffer.deleted = true;
  buffer.device->device_memory_tracker.remove(buffer.bytes);
}

void from_host(PJRT_Client_BufferFromHostBuffer_Args& args) {
  PJRT_Device* const device = args.memory != nullptr ? args.memory->device : args.device;
  args.buffer = new_buffer(device, args.type, {args.dims, args.dims + args.num_dims});
  args.done_with_host_buffer = new PJRT_Event;
}

void uninitialized(PJRT_Client_CreateUninitializedBuffer_Args& args) {
  PJRT_Device* const device = args.memory != nullptr ? args.memory->device : args.device;
  args.buffer = new_buffer(device, args.shape_element_type,
                           {args.shape_dims, args.shape_dims + args.shape_num_dims});
}

void to_device(PJRT_Buffer_CopyToDevice_Args& args) {
  args.dst_buffer = new_buffer(args.dst_device, args.buffer->type, args.buffer->dimensions);
}

void to_memory(PJRT_Buffer_CopyToMemory_Args& args) {
  args.dst_buffer = new_buffer(args.dst_memory->device, args.buffer->type, args.buffer->dimensions);
}

// Fills a tensor that was not computed: numbers are 1, or true, as in every dry run of hasten.
void fill_with_ones(const PJRT_Buffer& buffer, void* to, std::size_t bytes) {
  const auto write = [&](auto one) {
    std::fill_n(static_cast<decltype(one)*>(to), bytes / sizeof one, one);
  };
  constexpr std::uint16_t kHalf = 0x3c00, kBfloat = 0x3f80;  // 1.0
  switch (buffer.type) {
    case PJRT_Buffer_Type_F32:
      return write(1.0F);
    case PJRT_Buffer_Type_F64:
      return write(1.0);
    case PJRT_Buffer_Type_F16:
      return write(kHalf);
    case PJRT_Buffer_Type_BF16:
      return write(kBfloat);
    case PJRT_Buffer_Type_S16:
    case PJRT_Buffer_Type_U16:
      return write(std::uint16_t{1});
    case PJRT_Buffer_Type_S32:
    case PJRT_Buffer_Type_U32:
      return write(std::uint32_t{1});
    case PJRT_Buffer_Type_S64:
    case PJRT_Buffer_Type_U64:
      return write(std::uint64_t{1});
    case PJRT_Buffer_Type_PRED:
    case PJRT_Buffer_Type_S8:
    case PJRT_Buffer_Type_U8:
      return write(std::uint8_t{1});
    default:  // complex numbers and 8-bit floats are zeros
      std::memset(to, 0, bytes);
  }
}

void to_host(PJRT_Buffer_ToHostBuffer_Args& args) {
  const auto bytes = static_cast<std::size_t>(dense_bytes_of(*args.src));
  args.event = nullptr;
  if (args.dst == nullptr) {
    args.dst_size = bytes;
    return;
  }
  fill_with_ones(*args.src, args.dst, std::min(bytes, args.dst_size));
  args.event = new PJRT_Event;
  const std::lock_guard lock(plugin_state().mutex);
  ++plugin_state().reads;
}

void raw_to_host(PJRT_Buffer_CopyRawToHost_Args& args) {
  fill_with_ones(*args.buffer, args.dst, static_cast<std::size_t>(args.transfer_size));
  args.event = new PJRT_Event;
  const std::lock_guard lock(plugin_state().mutex);
  ++plugin_state().reads;
}

void destroy(PJRT_Buffer_Destroy_Args& args) {
  if (args.buffer == nullptr) return;
  const std::lock_guard lock(plugin_state().mutex);
  mark_deleted(*args.buffer);
  plugin_state().live.erase(args.buffer);
  delete args.buffer;
}

void remove(PJRT_Buffer_Delete_Args& args) {
  const std::lock_guard lock(plugin_state().mutex);
  mark_deleted(*args.buffer);
}

void is_deleted(PJRT_Buffer_IsDeleted_Args& args) {
  const std::lock_guard lock(plugin_state().mutex);
  args.is_deleted = args.buffer->deleted;
}

void type(PJRT_Buffer_ElementType_Args& args) { args.type = args.buffer->type; }

void dimensions(PJRT_Buffer_Dimensions_Args& args) {
  args.dims = args.buffer->dimensions.data();
  args.num_dims = args.buffer->dimensions.size();
}

void unpadded(PJRT_Buffer_UnpaddedDimensions_Args& args) {
  args.unpadded_dims = args.buffer->dimensions.data();
  args.num_dims = args.buffer->dimensions.size();
}

void dynamic_dimensions(PJRT_Buffer_DynamicDimensionIndices_Args& args) {
  args.dynamic_dim_indices = nullptr;
  args.num_dynamic_dims = 0;
}

void device_size(PJRT_Buffer_OnDeviceSizeInBytes_Args& args) {
  const std::lock_guard lock(plugin_state().mutex);
  args.on_device_size_in_bytes = static_cast<std::size_t>(args.buffer->bytes);
}

void device(PJRT_Buffer_Device_Args& args) { args.device = args.buffer->device; }
void memory(PJRT_Buffer_Memory_Args& args) { args.memory = &args.buffer->device->memory; }
void is_on_cpu(PJRT_Buffer_IsOnCpu_Args& args) { args.is_on_cpu = false; }
void ready_event(PJRT_Buffer_ReadyEvent_Args& args) { args.event = new PJRT_Event; }
void increase_reference_count(PJRT_Buffer_IncreaseExternalReferenceCount_Args&) {}
void decrease_reference_count(PJRT_Buffer_DecreaseExternalReferenceCount_Args&) {}

void event_destroy(PJRT_Event_Destroy_Args& args) { delete args.event; }
void event_is_ready(PJRT_Event_IsReady_Args& args) { args.is_ready = true; }
void event_error(PJRT_Event_Error_Args&) {}
void event_await(PJRT_Event_Await_Args&) {}
void event_on_ready(PJRT_Event_OnReady_Args& args) { args.callback(nullptr, args.user_arg); }

}  // namespace

PJRT_Buffer* new_buffer(PJRT_Device* device, PJRT_Buffer_Type type,
                        std::vector<std::int64_t> dimensions) {
  auto buffer = std::make_unique<PJRT_Buffer>();
  buffer->type = type;
  buffer->dimensions = std::move(dimensions);
  buffer->device = device;
  const std::lock_guard lock(plugin_state().mutex);
  const auto known = plugin_state().bytes_by_type.find({buffer->type, buffer->dimensions});
  buffer->has_layout = known != plugin_state().bytes_by_type.end();
  buffer->bytes = buffer->has_layout ? known->second : dense_bytes_of(*buffer);
  device->device_memory_tracker.add(buffer->bytes);
  buffer->made_in_pass = plugin_state().forward_passes;
  plugin_state().live.insert(buffer.get());
  return buffer.release();
}

void fill_buffers(PJRT_Api& api) {
  HASTEN_ENTRY(PJRT_Client_BufferFromHostBuffer, from_host);
  HASTEN_ENTRY(PJRT_Client_CreateUninitializedBuffer, uninitialized);
  HASTEN_ENTRY(PJRT_Buffer_CopyToDevice, to_device);
  HASTEN_ENTRY(PJRT_Buffer_CopyToMemory, to_memory);
  HASTEN_ENTRY(PJRT_Buffer_ToHostBuffer, to_host);
  HASTEN_ENTRY(PJRT_Buffer_CopyRawToHost, raw_to_host);
  HASTEN_ENTRY(PJRT_Buffer_Destroy, destroy);
  HASTEN_ENTRY(PJRT_Buffer_Delete, remove);
  HASTEN_ENTRY(PJRT_Buffer_IsDeleted, is_deleted);
  HASTEN_ENTRY(PJRT_Buffer_ElementType, type);
  HASTEN_ENTRY(PJRT_Buffer_Dimensions, dimensions);
  HASTEN_ENTRY(PJRT_Buffer_UnpaddedDimensions, unpadded);
  HASTEN_ENTRY(PJRT_Buffer_DynamicDimensionIndices, dynamic_dimensions);
  HASTEN_ENTRY(PJRT_Buffer_OnDeviceSizeInBytes, device_size);
  HASTEN_ENTRY(PJRT_Buffer_Device, device);
  HASTEN_ENTRY(PJRT_Buffer_Memory, memory);
  HASTEN_ENTRY(PJRT_Buffer_IsOnCpu, is_on_cpu);
  HASTEN_ENTRY(PJRT_Buffer_ReadyEvent, ready_event);
  HASTEN_ENTRY(PJRT_Buffer_IncreaseExternalReferenceCount, increase_reference_count);
  HASTEN_ENTRY(PJRT_Buffer_DecreaseExternalReferenceCount, decrease_reference_count);
  HASTEN_ENTRY(PJRT_Event_Destroy, event_destroy);
  HASTEN_ENTRY(PJRT_Event_IsReady, event_is_ready);
  HASTEN_ENTRY(PJRT_Event_Error, event_error);
  HASTEN_ENTRY(PJRT_Event_Await, event_await);
  HASTEN_ENTRY(PJRT_Event_OnReady, event_on_ready);
}

}  // namespace hasten::dry_tpu
