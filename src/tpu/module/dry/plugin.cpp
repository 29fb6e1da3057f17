// The module's two interfaces: PJRT's table of functions for torch_tpu, and the estimate for
// libhasten.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/internal_api.h"
#include "tpu/module/dry/dry_tpu_functions.h"
#include "tpu/module/dry/objects.h"

namespace hasten::dry_tpu {
namespace {

using Json = nlohmann::ordered_json;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr || *value == '\0')
    throw Failure(PJRT_Error_Code_FAILED_PRECONDITION, std::string(name) + " is not set");
  return value;
}

std::string path_of_module() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&hasten_dry_tpu_enter), &info) == 0) return "";
  return std::filesystem::canonical(info.dli_fname).string();
}

// Shows progress: in one line on a terminal, otherwise in a line for every 50th program.
void show_progress(std::int64_t number) {
  constexpr std::int64_t kProgressInterval = 50;
  if (isatty(STDERR_FILENO) != 0) {
    std::fprintf(stderr, "\rcompiling program %lld ", static_cast<long long>(number));
  } else if (number % kProgressInterval == 0) {
    std::fprintf(stderr, "compiling program %lld\n", static_cast<long long>(number));
  }
}

void error_destroy(PJRT_Error_Destroy_Args* args) { delete args->error; }
void error_message(PJRT_Error_Message_Args* args) {
  args->message = args->error->message.data();
  args->message_size = args->error->message.size();
}
void error_code(PJRT_Error_GetCode_Args& args) { args.code = args.error->code; }

// Replaces the functions that torch_tpu has not been seen to call.
template <std::size_t slot>
PJRT_Error* unimplemented(void* /*args*/) {
  return new PJRT_Error{PJRT_Error_Code_UNIMPLEMENTED, "PJRT function " + std::to_string(slot) +
                                                           " is not implemented for a dry TPU"};
}

using Function = PJRT_Error* (*)(void*);
constexpr std::size_t kFirst = offsetof(PJRT_Api, PJRT_Error_Destroy) / sizeof(Function);
constexpr std::size_t kFunctions = sizeof(PJRT_Api) / sizeof(Function) - kFirst;

template <std::size_t... slots>
void fill_all(Function* functions, std::index_sequence<slots...> /*all*/) {
  ((functions[slots] = unimplemented<slots>), ...);
}

PJRT_Api table() {
  PJRT_Api api = HASTEN_PJRT_STRUCT(PJRT_Api);
  api.pjrt_api_version = HASTEN_PJRT_STRUCT(PJRT_Api_Version);
  api.pjrt_api_version.major_version = PJRT_API_MAJOR;
  api.pjrt_api_version.minor_version = PJRT_API_MINOR;
  fill_all(reinterpret_cast<Function*>(&api) + kFirst, std::make_index_sequence<kFunctions>());
  api.PJRT_Error_Destroy = error_destroy;
  api.PJRT_Error_Message = error_message;
  HASTEN_ENTRY(PJRT_Error_GetCode, error_code);
  fill_client(api);
  fill_buffers(api);
  fill_programs(api);
  return api;
}

// Returns the bytes of the existing tensors that were made since the last forward pass began. The
// caller holds the lock.
std::int64_t bytes_since_forward(const PluginState& all) {
  std::int64_t bytes = 0;
  for (const PJRT_Buffer* const each : all.live)
    if (!each->deleted && each->made_in_pass == all.forward_passes) bytes += each->bytes;
  return bytes;
}

PJRT_Buffer_Type type_of(std::string_view name) {
  constexpr std::pair<std::string_view, PJRT_Buffer_Type> kTypes[] = {
      {"Float", PJRT_Buffer_Type_F32},       {"Double", PJRT_Buffer_Type_F64},
      {"Half", PJRT_Buffer_Type_F16},        {"BFloat16", PJRT_Buffer_Type_BF16},
      {"Long", PJRT_Buffer_Type_S64},        {"Int", PJRT_Buffer_Type_S32},
      {"Short", PJRT_Buffer_Type_S16},       {"Char", PJRT_Buffer_Type_S8},
      {"Byte", PJRT_Buffer_Type_U8},         {"Bool", PJRT_Buffer_Type_PRED},
      {"ComplexFloat", PJRT_Buffer_Type_C64}};
  for (const auto& [known, type] : kTypes)
    if (known == name) return type;
  return PJRT_Buffer_Type_INVALID;
}

Json json_of(const MemoryUsage& usage) {
  return {{"total", usage.total()},
          {"tensors", usage.tensors},
          {"temporaries", usage.temporaries},
          {"code", usage.code},
          {"program", usage.program}};
}

// Returns the device with the highest peak.
const PJRT_Device& device_with_highest_peak(const PJRT_Client& client) {
  const PJRT_Device* largest = client.devices.front();
  for (const PJRT_Device* const each : client.devices)
    if (each->device_memory_tracker.peak().total() > largest->device_memory_tracker.peak().total())
      largest = each;
  return *largest;
}

Json report() {
  PluginState& all = plugin_state();
  const TopologyInfo& topology = all.compiler.topology();
  const CompileStatistics statistics = all.compiler.statistics();
  const std::lock_guard lock(all.mutex);
  const PJRT_Device& device = device_with_highest_peak(all.client);
  Json visits = Json::array(), failed = Json::array();
  for (const PhaseVisit& each : device.device_memory_tracker.visits()) {
    visits.push_back({{"phase", each.phase},
                      {"tensors_before", each.tensors_before},
                      {"tensors_after", each.tensors_after},
                      {"peak", json_of(each.peak)}});
  }
  for (const auto& each : statistics.failed)
    failed.push_back({{"program", each.program}, {"message", each.message}});
  std::int64_t unpadded_bytes = 0;
  for (const PJRT_Buffer* const each : all.live)
    if (!each->has_layout && !each->deleted) unpadded_bytes += each->bytes;
  return {{"topology", variable(kDryTpuTopology)},
          {"compiled_for",
           all.compiler.ahead_of_time() ? device.description.info.kind : topology.platform},
          {"ahead_of_time", all.compiler.ahead_of_time()},
          {"devices", all.client.devices.size()},
          {"memory", topology.memory},
          {"programs", statistics.compiled},
          {"compile_seconds", statistics.seconds},
          {"runs", all.runs},
          {"reads", all.reads},
          {"failed", failed},
          {"unpadded_bytes", unpadded_bytes},
          {"mismatched_runs", all.mismatched_runs},
          {"activations", all.activations},
          {"peak", json_of(device.device_memory_tracker.peak())},
          {"now", json_of(device.device_memory_tracker.now())},
          {"visits", visits}};
}

}  // namespace

PluginState::PluginState()
    : compiler(variable(kDryTpuCompiler), variable(kDryTpuTopology), show_progress) {
  for (const DeviceInfo& info : compiler.topology().devices) {
    auto device = std::make_unique<PJRT_Device>();
    device->index = static_cast<int>(client.owned.size());
    device->description.info = info;
    device->memory.device = device.get();
    device->memory.id = device->index;
    client.devices.push_back(device.get());
    client.memories.push_back(&device->memory);
    client.topology.devices.push_back(&device->description);
    client.owned.push_back(std::move(device));
  }
}

PluginState& plugin_state() {
  static PluginState& one = *new PluginState;  // torch_tpu's threads outlive static objects
  return one;
}

}  // namespace hasten::dry_tpu

using namespace hasten::dry_tpu;

extern "C" HASTEN_INTERNAL_API const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api api = table();
  return &api;
}

extern "C" void hasten_dry_tpu_set_environment(const char* topology, const char* compiler) {
  const auto set = [](const char* name, const std::string& value) {
    setenv(name, value.c_str(), 1);
  };
  set(hasten::kDryTpuTopology, topology);
  set(hasten::kDryTpuCompiler, compiler);
  set("TPU_LIBRARY_PATH", path_of_module());
  set("ACCELERATE_USE_TPU", "true");
  // Blocking keeps operators in the program's order, so that each has a phase. It is not set if
  // operators are to be deferred, because it would undo that.
  const char* const defers = std::getenv("TORCH_TPU_DEFER_AND_FUSE");
  if (defers == nullptr || defers != std::string_view("1")) setenv(hasten::kTpuBlocking, "1", 0);
}

extern "C" void hasten_dry_tpu_enter(const char* phase) {
  PluginState& all = plugin_state();
  const std::lock_guard lock(all.mutex);
  for (PJRT_Device* const device : all.client.devices) device->device_memory_tracker.enter(phase);
  if (phase == std::string_view("forward")) ++all.forward_passes;
  if (phase == std::string_view("backward") && all.measured_pass != all.forward_passes) {
    all.measured_pass = all.forward_passes;
    all.activations = bytes_since_forward(all);
  }
}

extern "C" std::int64_t hasten_dry_tpu_bytes(const char* type, const std::int64_t* sizes,
                                             std::size_t dimensions) {
  const TypeAndSizes key{type_of(type), {sizes, sizes + dimensions}};
  const std::lock_guard lock(plugin_state().mutex);
  const auto known = plugin_state().bytes_by_type.find(key);
  return known != plugin_state().bytes_by_type.end() ? known->second
                                                     : dense_bytes(key.first, key.second);
}

extern "C" void hasten_dry_tpu_report(std::string& json) {
  if (isatty(STDERR_FILENO) != 0) std::fputs("\r\033[K", stderr);  // erases the progress line
  json = report().dump();
}
