// PJRT's functions for the client, its devices and their memories.
#include "tpu/module/dry/objects.h"

namespace hasten::dry_tpu {
namespace {

void initialize(PJRT_Plugin_Initialize_Args&) {}

void plugin_attributes(PJRT_Plugin_Attributes_Args& args) {
  args.attributes = plugin_state().compiler.plugin_attributes(args.num_attributes);
}

// Ignores the options, which are the sizes of a TPU's buffers for transfers.
void create(PJRT_Client_Create_Args& args) { args.client = &plugin_state().client; }
void destroy(PJRT_Client_Destroy_Args&) {}

void platform_name(PJRT_Client_PlatformName_Args& args) {
  const std::string& name = plugin_state().compiler.topology().platform;
  args.platform_name = name.data();
  args.platform_name_size = name.size();
}

void platform_version(PJRT_Client_PlatformVersion_Args& args) {
  const std::string& version = plugin_state().compiler.topology().version;
  args.platform_version = version.data();
  args.platform_version_size = version.size();
}

void process_index(PJRT_Client_ProcessIndex_Args& args) { args.process_index = 0; }

void topology(PJRT_Client_TopologyDescription_Args& args) {
  args.topology = &args.client->topology;
}

void devices(PJRT_Client_Devices_Args& args) {
  args.devices = args.client->devices.data();
  args.num_devices = args.client->devices.size();
}

void addressable_devices(PJRT_Client_AddressableDevices_Args& args) {
  args.addressable_devices = args.client->devices.data();
  args.num_addressable_devices = args.client->devices.size();
}

void memories(PJRT_Client_AddressableMemories_Args& args) {
  args.addressable_memories = args.client->memories.data();
  args.num_addressable_memories = args.client->memories.size();
}

PJRT_Device* find_device(const PJRT_Client& client, int number,
                         int (*number_of)(const PJRT_Device&)) {
  for (PJRT_Device* const device : client.devices)
    if (number_of(*device) == number) return device;
  throw Failure(PJRT_Error_Code_NOT_FOUND, "no device " + std::to_string(number));
}

void device_by_id(PJRT_Client_LookupDevice_Args& args) {
  args.device = find_device(*args.client, args.id,
                            [](const PJRT_Device& device) { return device.description.info.id; });
}

void device_by_hardware(PJRT_Client_LookupAddressableDevice_Args& args) {
  args.addressable_device = find_device(*args.client, args.local_hardware_id,
                                        [](const PJRT_Device& device) { return device.index; });
}

void default_assignment(PJRT_Client_DefaultDeviceAssignment_Args& args) {
  const auto wanted = static_cast<std::size_t>(args.num_replicas * args.num_partitions);
  if (wanted > args.client->devices.size() || wanted > args.default_assignment_size)
    throw Failure(PJRT_Error_Code_INVALID_ARGUMENT, "more devices than the topology has");
  for (std::size_t i = 0; i < wanted; ++i)
    args.default_assignment[i] = args.client->devices[i]->description.info.id;
}

void topology_platform(PJRT_TopologyDescription_PlatformName_Args& args) {
  const std::string& name = plugin_state().compiler.topology().platform;
  args.platform_name = name.data();
  args.platform_name_size = name.size();
}

void topology_version(PJRT_TopologyDescription_PlatformVersion_Args& args) {
  const std::string& version = plugin_state().compiler.topology().version;
  args.platform_version = version.data();
  args.platform_version_size = version.size();
}

void topology_devices(PJRT_TopologyDescription_GetDeviceDescriptions_Args& args) {
  args.descriptions = args.topology->devices.data();
  args.num_descriptions = args.topology->devices.size();
}

void topology_attributes(PJRT_TopologyDescription_Attributes_Args& args) {
  args.attributes = plugin_state().compiler.topology().attributes;
  args.num_attributes = plugin_state().compiler.topology().attribute_count;
}

void topology_destroy(PJRT_TopologyDescription_Destroy_Args&) {}

void id(PJRT_DeviceDescription_Id_Args& args) { args.id = args.device_description->info.id; }

void device_process(PJRT_DeviceDescription_ProcessIndex_Args& args) { args.process_index = 0; }

void attributes(PJRT_DeviceDescription_Attributes_Args& args) {
  args.attributes = args.device_description->info.attributes;
  args.num_attributes = args.device_description->info.attribute_count;
}

void kind(PJRT_DeviceDescription_Kind_Args& args) {
  const std::string& text = args.device_description->info.kind;
  args.device_kind = text.data();
  args.device_kind_size = text.size();
}

void debug_string(PJRT_DeviceDescription_DebugString_Args& args) {
  const std::string& text = args.device_description->info.debug;
  args.debug_string = text.data();
  args.debug_string_size = text.size();
}

void to_string(PJRT_DeviceDescription_ToString_Args& args) {
  const std::string& text = args.device_description->info.text;
  args.to_string = text.data();
  args.to_string_size = text.size();
}

void description(PJRT_Device_GetDescription_Args& args) {
  args.device_description = &args.device->description;
}

void is_addressable(PJRT_Device_IsAddressable_Args& args) { args.is_addressable = true; }
void hardware_id(PJRT_Device_LocalHardwareId_Args& args) {
  args.local_hardware_id = args.device->index;
}

void device_memories(PJRT_Device_AddressableMemories_Args& args) {
  args.memories = args.device->memories;
  args.num_memories = 1;
}

void default_memory(PJRT_Device_DefaultMemory_Args& args) { args.memory = &args.device->memory; }

void memory_stats(PJRT_Device_MemoryStats_Args& args) {
  const std::lock_guard lock(plugin_state().mutex);
  args.bytes_in_use = args.device->device_memory_tracker.now().total();
  args.peak_bytes_in_use = args.device->device_memory_tracker.peak().total();
  args.peak_bytes_in_use_is_set = true;
  args.bytes_limit = plugin_state().compiler.topology().memory;
  args.bytes_limit_is_set = args.bytes_limit > 0;
}

void memory_id(PJRT_Memory_Id_Args& args) { args.id = args.memory->id; }

void memory_kind(PJRT_Memory_Kind_Args& args) {
  args.kind = kMemoryKind;
  args.kind_size = sizeof kMemoryKind - 1;
}

void memory_kind_id(PJRT_Memory_Kind_Id_Args& args) { args.kind_id = 0; }

void memory_debug_string(PJRT_Memory_DebugString_Args& args) {
  args.debug_string = kMemoryKind;
  args.debug_string_size = sizeof kMemoryKind - 1;
}

void memory_to_string(PJRT_Memory_ToString_Args& args) {
  args.to_string = kMemoryKind;
  args.to_string_size = sizeof kMemoryKind - 1;
}

void memory_devices(PJRT_Memory_AddressableByDevices_Args& args) {
  args.devices = args.memory->device->self;
  args.num_devices = 1;
}

}  // namespace

void fill_client(PJRT_Api& api) {
  HASTEN_ENTRY(PJRT_Plugin_Initialize, initialize);
  HASTEN_ENTRY(PJRT_Plugin_Attributes, plugin_attributes);
  HASTEN_ENTRY(PJRT_Client_Create, create);
  HASTEN_ENTRY(PJRT_Client_Destroy, destroy);
  HASTEN_ENTRY(PJRT_Client_PlatformName, platform_name);
  HASTEN_ENTRY(PJRT_Client_PlatformVersion, platform_version);
  HASTEN_ENTRY(PJRT_Client_ProcessIndex, process_index);
  HASTEN_ENTRY(PJRT_Client_TopologyDescription, topology);
  HASTEN_ENTRY(PJRT_Client_Devices, devices);
  HASTEN_ENTRY(PJRT_Client_AddressableDevices, addressable_devices);
  HASTEN_ENTRY(PJRT_Client_AddressableMemories, memories);
  HASTEN_ENTRY(PJRT_Client_LookupDevice, device_by_id);
  HASTEN_ENTRY(PJRT_Client_LookupAddressableDevice, device_by_hardware);
  HASTEN_ENTRY(PJRT_Client_DefaultDeviceAssignment, default_assignment);
  HASTEN_ENTRY(PJRT_TopologyDescription_PlatformName, topology_platform);
  HASTEN_ENTRY(PJRT_TopologyDescription_PlatformVersion, topology_version);
  HASTEN_ENTRY(PJRT_TopologyDescription_GetDeviceDescriptions, topology_devices);
  HASTEN_ENTRY(PJRT_TopologyDescription_Attributes, topology_attributes);
  HASTEN_ENTRY(PJRT_TopologyDescription_Destroy, topology_destroy);
  HASTEN_ENTRY(PJRT_DeviceDescription_Id, id);
  HASTEN_ENTRY(PJRT_DeviceDescription_ProcessIndex, device_process);
  HASTEN_ENTRY(PJRT_DeviceDescription_Attributes, attributes);
  HASTEN_ENTRY(PJRT_DeviceDescription_Kind, kind);
  HASTEN_ENTRY(PJRT_DeviceDescription_DebugString, debug_string);
  HASTEN_ENTRY(PJRT_DeviceDescription_ToString, to_string);
  HASTEN_ENTRY(PJRT_Device_GetDescription, description);
  HASTEN_ENTRY(PJRT_Device_IsAddressable, is_addressable);
  HASTEN_ENTRY(PJRT_Device_LocalHardwareId, hardware_id);
  HASTEN_ENTRY(PJRT_Device_AddressableMemories, device_memories);
  HASTEN_ENTRY(PJRT_Device_DefaultMemory, default_memory);
  HASTEN_ENTRY(PJRT_Device_MemoryStats, memory_stats);
  HASTEN_ENTRY(PJRT_Memory_Id, memory_id);
  HASTEN_ENTRY(PJRT_Memory_Kind, memory_kind);
  HASTEN_ENTRY(PJRT_Memory_Kind_Id, memory_kind_id);
  HASTEN_ENTRY(PJRT_Memory_DebugString, memory_debug_string);
  HASTEN_ENTRY(PJRT_Memory_ToString, memory_to_string);
  HASTEN_ENTRY(PJRT_Memory_AddressableByDevices, memory_devices);
}

}  // namespace hasten::dry_tpu
