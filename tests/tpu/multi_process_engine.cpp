#include "multi_process_engine.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include "pjrt_struct.h"

namespace hasten::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kTimeout = 120s;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "tests/tpu/plugin.cpp: %s\n", why.c_str());
  _exit(70);
}

// Writes a complete file under another name, and then renames it.
void write_file(const fs::path& path, const std::vector<char>& bytes) {
  const fs::path part = path.string() + ".part";
  std::ofstream(part, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  fs::rename(part, path);
}

std::vector<char> wait_and_read(const fs::path& path) {
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  while (!fs::exists(path)) {
    if (std::chrono::steady_clock::now() > deadline)
      give_up("no process has written " + path.string());
    std::this_thread::sleep_for(100us);
  }
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::int64_t MultiProcessEngine::number() {
  if (variable("HASTEN_TEST_EXCHANGE_FOLDER").empty()) return 1;
  const std::string addresses = variable("TPU_PROCESS_ADDRESSES");
  return 1 + std::count(addresses.begin(), addresses.end(), ',');
}

MultiProcessEngine::MultiProcessEngine(const PJRT_Api& engine)
    : engine_(engine),
      folder_(variable("HASTEN_TEST_EXCHANGE_FOLDER")),
      rank_(std::stoll(variable("CLOUD_TPU_TASK_ID"))),
      number_(number()) {}

namespace {
MultiProcessEngine* only_one = nullptr;
}
MultiProcessEngine& MultiProcessEngine::one() { return *only_one; }

void MultiProcessEngine::install(PJRT_Api& table) {
  only_one = this;
  table.PJRT_Client_ProcessIndex = [](PJRT_Client_ProcessIndex_Args* args) -> PJRT_Error* {
    args->process_index = static_cast<int>(one().rank_);
    return nullptr;
  };
  table.PJRT_Client_AddressableDevices =
      [](PJRT_Client_AddressableDevices_Args* args) -> PJRT_Error* {
    one().check(one().engine_.PJRT_Client_AddressableDevices(args));
    one().client_ = args->client;
    args->addressable_devices += one().rank_;
    args->num_addressable_devices = 1;
    return nullptr;
  };
  table.PJRT_Device_IsAddressable = [](PJRT_Device_IsAddressable_Args* args) -> PJRT_Error* {
    args->is_addressable = one().id_of(args->device) == one().rank_;
    return nullptr;
  };
  table.PJRT_Device_LocalHardwareId = [](PJRT_Device_LocalHardwareId_Args* args) -> PJRT_Error* {
    args->local_hardware_id = 0;
    return nullptr;
  };
  table.PJRT_Client_LookupAddressableDevice = [](PJRT_Client_LookupAddressableDevice_Args* args) {
    args->local_hardware_id = static_cast<int>(one().rank_);
    return one().engine_.PJRT_Client_LookupAddressableDevice(args);
  };
  table.PJRT_DeviceDescription_ProcessIndex =
      [](PJRT_DeviceDescription_ProcessIndex_Args* args) -> PJRT_Error* {
    auto id = PJRT_STRUCT(PJRT_DeviceDescription_Id_Args);
    id.device_description = args->device_description;
    one().check(one().engine_.PJRT_DeviceDescription_Id(&id));
    args->process_index = id.id;
    return nullptr;
  };
  table.PJRT_LoadedExecutable_AddressableDevices =
      [](PJRT_LoadedExecutable_AddressableDevices_Args* args) -> PJRT_Error* {
    one().check(one().engine_.PJRT_LoadedExecutable_AddressableDevices(args));
    for (std::size_t i = 0; args->num_addressable_devices > 1 && i < args->num_addressable_devices;
         ++i) {
      if (one().id_of(args->addressable_devices[i]) != one().rank_) continue;
      args->addressable_devices += i;
      args->num_addressable_devices = 1;
    }
    return nullptr;
  };
  table.PJRT_LoadedExecutable_Destroy = [](PJRT_LoadedExecutable_Destroy_Args* args) {
    {
      const std::lock_guard lock(one().mutex_);
      one().communicates_.erase(args->executable);  // the address can be reused
    }
    return one().engine_.PJRT_LoadedExecutable_Destroy(args);
  };
  table.PJRT_LoadedExecutable_Execute = [](PJRT_LoadedExecutable_Execute_Args* args) {
    return one().execute(args);
  };
}

bool MultiProcessEngine::has_communication(PJRT_LoadedExecutable* executable) {
  const std::lock_guard lock(mutex_);
  const auto known = communicates_.find(executable);
  if (known != communicates_.end()) return known->second;
  PJRT_Program program;
  std::memset(&program, 0, sizeof program);
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  auto args = PJRT_STRUCT(PJRT_Executable_OptimizedProgram_Args);
  args.executable = program_of(executable);
  args.program = &program;
  check(engine_.PJRT_Executable_OptimizedProgram(&args));
  std::string code(program.code_size, '\0');
  program.code = code.data();
  check(engine_.PJRT_Executable_OptimizedProgram(&args));
  bool found = false;
  for (const char* const name :
       {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-"})
    found |= code.find(name) != code.npos;
  return communicates_[executable] = found;
}

PJRT_Executable* MultiProcessEngine::program_of(PJRT_LoadedExecutable* executable) const {
  auto get = PJRT_STRUCT(PJRT_LoadedExecutable_GetExecutable_Args);
  get.loaded_executable = executable;
  check(engine_.PJRT_LoadedExecutable_GetExecutable(&get));
  return get.executable;
}

PJRT_Error* MultiProcessEngine::execute(PJRT_LoadedExecutable_Execute_Args* args) {
  const std::vector<PJRT_Device*> devices = devices_of(args->executable);
  if (devices.size() == 1) return engine_.PJRT_LoadedExecutable_Execute(args);
  if (!has_communication(args->executable)) return execute_on_all(args, devices, false);
  const std::lock_guard lock(exchange_mutex_);
  return execute_on_all(args, devices, true);
}

// The engine needs arguments for all devices of a program, even if it does not communicate. The
// other devices then repeat this one's work.
PJRT_Error* MultiProcessEngine::execute_on_all(PJRT_LoadedExecutable_Execute_Args* args,
                                               const std::vector<PJRT_Device*>& devices,
                                               bool communicates) {
  std::vector<PJRT_Buffer*> own(args->argument_lists[0], args->argument_lists[0] + args->num_args);
  std::vector<std::size_t> sizes;
  Bytes bytes;
  for (PJRT_Buffer* const buffer : own) {
    const Bytes each = bytes_of(buffer);
    sizes.push_back(each.size());
    bytes.insert(bytes.end(), each.begin(), each.end());
  }
  const std::vector<Bytes> all =
      communicates ? exchange(bytes) : std::vector<Bytes>(devices.size(), bytes);

  auto outputs = PJRT_STRUCT(PJRT_Executable_NumOutputs_Args);
  outputs.executable = program_of(args->executable);
  check(engine_.PJRT_Executable_NumOutputs(&outputs));

  std::size_t own_index = 0;
  std::vector<std::vector<PJRT_Buffer*>> in, out;
  for (PJRT_Device* const device : devices) {
    const std::int64_t id = id_of(device);
    out.emplace_back(outputs.num_outputs);
    if (id == rank_) {
      own_index = in.size();
      in.push_back(own);
      continue;
    }
    in.emplace_back();
    const char* at = all[static_cast<std::size_t>(id)].data();
    for (std::size_t i = 0; i < own.size(); at += sizes[i++])
      in.back().push_back(copy_to(device, own[i], at));
  }
  std::vector<PJRT_Buffer* const*> in_lists;
  std::vector<PJRT_Buffer**> out_lists;
  for (std::size_t i = 0; i < in.size(); ++i) {
    in_lists.push_back(in[i].data());
    out_lists.push_back(out[i].data());
  }
  std::vector<PJRT_Event*> events(devices.size());
  // The copy keeps the fields that a later version of the interface adds after these.
  std::vector<char> copy(std::max(args->struct_size, sizeof *args));
  std::memcpy(copy.data(), args, args->struct_size);
  auto& with = *reinterpret_cast<PJRT_LoadedExecutable_Execute_Args*>(copy.data());
  with.num_devices = devices.size();
  with.argument_lists = in_lists.data();
  with.output_lists = out_lists.data();
  with.device_complete_events = events.data();
  with.execute_device = nullptr;
  if (PJRT_Error* const error = engine_.PJRT_LoadedExecutable_Execute(&with)) return error;

  std::copy(out[own_index].begin(), out[own_index].end(), args->output_lists[0]);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (i == own_index && args->device_complete_events != nullptr) {
      args->device_complete_events[0] = events[i];
      continue;
    }
    wait_for(events[i]);
    if (i == own_index) continue;
    for (auto* list : {&in[i], &out[i]}) {
      for (PJRT_Buffer* const buffer : *list) {
        auto destroy = PJRT_STRUCT(PJRT_Buffer_Destroy_Args);
        destroy.buffer = buffer;
        check(engine_.PJRT_Buffer_Destroy(&destroy));
      }
    }
  }
  return nullptr;
}

std::vector<PJRT_Device*> MultiProcessEngine::devices_of(PJRT_LoadedExecutable* executable) const {
  auto args = PJRT_STRUCT(PJRT_LoadedExecutable_AddressableDevices_Args);
  args.executable = executable;
  check(engine_.PJRT_LoadedExecutable_AddressableDevices(&args));
  return {args.addressable_devices, args.addressable_devices + args.num_addressable_devices};
}

// A process that writes for an exchange has read the files of the previous one, so they can be
// removed.
std::vector<MultiProcessEngine::Bytes> MultiProcessEngine::exchange(const Bytes& own) {
  const auto file = [this](std::int64_t number, std::int64_t rank) {
    return folder_ / (std::to_string(number) + "." + std::to_string(rank));
  };
  write_file(file(exchanges_, rank_), own);
  std::vector<Bytes> all;
  for (std::int64_t rank = 0; rank < number_; ++rank) {
    all.push_back(rank == rank_ ? own : wait_and_read(file(exchanges_, rank)));
    if (all.back().size() != own.size()) {
      give_up("ranks run different programs in exchange " + std::to_string(exchanges_) + ": " +
              std::to_string(own.size()) + " bytes here, " + std::to_string(all.back().size()) +
              " on rank " + std::to_string(rank));
    }
  }
  if (exchanges_ > 0) fs::remove(file(exchanges_ - 1, rank_));
  ++exchanges_;
  return all;
}

MultiProcessEngine::Bytes MultiProcessEngine::bytes_of(PJRT_Buffer* buffer) const {
  auto args = PJRT_STRUCT(PJRT_Buffer_ToHostBuffer_Args);
  args.src = buffer;
  check(engine_.PJRT_Buffer_ToHostBuffer(&args));
  Bytes bytes(args.dst_size);
  args.dst = bytes.data();
  check(engine_.PJRT_Buffer_ToHostBuffer(&args));
  wait_for(args.event);
  return bytes;
}

PJRT_Buffer* MultiProcessEngine::copy_to(PJRT_Device* device, PJRT_Buffer* like,
                                         const char* bytes) const {
  auto type = PJRT_STRUCT(PJRT_Buffer_ElementType_Args);
  type.buffer = like;
  check(engine_.PJRT_Buffer_ElementType(&type));
  auto shape = PJRT_STRUCT(PJRT_Buffer_Dimensions_Args);
  shape.buffer = like;
  check(engine_.PJRT_Buffer_Dimensions(&shape));
  auto args = PJRT_STRUCT(PJRT_Client_BufferFromHostBuffer_Args);
  args.client = client_;
  args.data = bytes;
  args.type = type.type;
  args.dims = shape.dims;
  args.num_dims = shape.num_dims;
  args.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  args.device = device;
  check(engine_.PJRT_Client_BufferFromHostBuffer(&args));
  wait_for(args.done_with_host_buffer);
  return args.buffer;
}

std::int64_t MultiProcessEngine::id_of(PJRT_Device* device) const {
  auto get = PJRT_STRUCT(PJRT_Device_GetDescription_Args);
  get.device = device;
  check(engine_.PJRT_Device_GetDescription(&get));
  auto id = PJRT_STRUCT(PJRT_DeviceDescription_Id_Args);
  id.device_description = get.device_description;
  check(engine_.PJRT_DeviceDescription_Id(&id));
  return id.id;
}

void MultiProcessEngine::wait_for(PJRT_Event* event) const {
  auto await = PJRT_STRUCT(PJRT_Event_Await_Args);
  await.event = event;
  check(engine_.PJRT_Event_Await(&await));
  auto destroy = PJRT_STRUCT(PJRT_Event_Destroy_Args);
  destroy.event = event;
  check(engine_.PJRT_Event_Destroy(&destroy));
}

void MultiProcessEngine::check(PJRT_Error* error) const {
  if (error != nullptr) give_up(take_message(engine_, error));
}

}  // namespace hasten::test
