// PJRT's functions for programs. They really compile a program, but to run it they only count its
// memory.
#include <algorithm>
#include <functional>
#include <protozero/pbf_reader.hpp>

#include "tpu/module/dry/objects.h"

namespace hasten::dry_tpu {
namespace {

// Returns CompileOptionsProto's executable_build_options.device_assignment, or "".
std::string assignment_in(std::string_view options) {
  protozero::pbf_reader message(options.data(), options.size());
  if (!message.next(3)) return "";
  protozero::pbf_reader build = message.get_message();
  return build.next(9) ? build.get_string() : "";
}

// Returns the devices of an assignment (DeviceAssignmentProto), or the first device of the client
// if the assignment names none.
std::vector<PJRT_Device*> devices_in(std::string_view assignment, const PJRT_Client& client) {
  std::vector<PJRT_Device*> devices;
  protozero::pbf_reader message(assignment.data(), assignment.size());
  while (message.next(3)) {
    protozero::pbf_reader row = message.get_message();
    if (!row.next(1)) continue;
    for (const std::int64_t id : row.get_packed_int64())
      for (PJRT_Device* const device : client.devices)
        if (device->description.info.id == id) devices.push_back(device);
  }
  if (devices.empty()) devices.push_back(client.devices.front());
  return devices;
}

// Returns an assignment with replica_count 1, computation_count 1 and device `id`.
std::string assignment_of(int id) {
  const auto byte = static_cast<char>(id);
  return std::string("\x08\x01\x10\x01\x1a\x03\x0a\x01", 8) + byte;
}

void compile(PJRT_Client_Compile_Args& args) {
  const std::string_view options(args.compile_options, args.compile_options_size);
  auto loaded = std::make_unique<PJRT_LoadedExecutable>();
  loaded->program = plugin_state().compiler.compile(*args.program, options);
  loaded->assignment = assignment_in(options);
  loaded->devices = devices_in(loaded->assignment, *args.client);
  if (loaded->assignment.empty())
    loaded->assignment = assignment_of(loaded->devices.front()->description.info.id);
  const std::lock_guard lock(plugin_state().mutex);
  for (PJRT_Device* const device : loaded->devices)
    device->device_memory_tracker.load(loaded->program->code);
  args.executable = loaded.release();
}

// The caller holds the lock.
void unload(PJRT_LoadedExecutable& loaded) {
  if (loaded.deleted) return;
  loaded.deleted = true;
  for (PJRT_Device* const device : loaded.devices)
    device->device_memory_tracker.unload(loaded.program->code);
}

void loaded_destroy(PJRT_LoadedExecutable_Destroy_Args& args) {
  if (args.executable == nullptr) return;
  const std::lock_guard lock(plugin_state().mutex);
  unload(*args.executable);
  delete args.executable;
}

void loaded_delete(PJRT_LoadedExecutable_Delete_Args& args) {
  const std::lock_guard lock(plugin_state().mutex);
  unload(*args.executable);
}

void loaded_is_deleted(PJRT_LoadedExecutable_IsDeleted_Args& args) {
  args.is_deleted = args.executable->deleted;
}

void loaded_devices(PJRT_LoadedExecutable_AddressableDevices_Args& args) {
  args.addressable_devices = args.executable->devices.data();
  args.num_addressable_devices = args.executable->devices.size();
}

void loaded_assignment(PJRT_LoadedExecutable_GetDeviceAssignment_Args& args) {
  args.serialized_bytes = args.executable->assignment.data();
  args.serialized_bytes_size = args.executable->assignment.size();
  args.serialized_device_assignment = nullptr;
  args.serialized_device_assignment_deleter = [](PJRT_DeviceAssignmentSerialized*) {};
}

// Learns from a program's arguments how tensors of the same types and sizes are laid out on the
// device. The arguments may be results of programs, whose own layouts are known. What is learned is
// also the layout of tensors that came from the host before.
void record_layouts(const Program& program, PJRT_Buffer* const* arguments, std::size_t count) {
  PluginState& all = plugin_state();
  if (program.parameters.size() != count) return;
  for (std::size_t i = 0; i < count; ++i) {
    const PJRT_Buffer& argument = *arguments[i];
    const TypeAndSizes key{argument.type, argument.dimensions};
    if (!all.bytes_by_type.emplace(key, program.parameters[i]).second) continue;
    for (PJRT_Buffer* const each : all.live) {
      if (each->has_layout || each->deleted || each->type != key.first ||
          each->dimensions != key.second)
        continue;
      each->device->device_memory_tracker.remove(each->bytes);
      each->bytes = program.parameters[i];
      each->has_layout = true;
      each->device->device_memory_tracker.add(each->bytes);
    }
  }
}

// Returns whether the arguments' sizes add up to the compiler's sum.
bool sizes_match(const Program& program) {
  std::int64_t sum = 0;
  for (const std::int64_t bytes : program.parameters) sum += bytes;
  return program.parameters.empty() || sum == program.arguments;
}

bool may_be_donated(const PJRT_ExecuteOptions* options, std::int64_t argument) {
  if (options == nullptr) return true;
  const std::int64_t* const begin = options->non_donatable_input_indices;
  const std::int64_t* const end = begin + options->num_non_donatable_input_indices;
  return std::find(begin, end, argument) == end;
}

// Runs a program on one device. The caller holds the lock.
void execute_on(PJRT_Device& device, const Program& program, const PJRT_ExecuteOptions* options,
                PJRT_Buffer* const* arguments, std::size_t count, PJRT_Buffer** outputs) {
  record_layouts(program, arguments, count);
  Run run{.temporaries = program.temporaries};
  for (std::size_t i = 0; i < program.outputs.size(); ++i) {
    const Output& output = program.outputs[i];
    auto buffer = std::make_unique<PJRT_Buffer>();
    buffer->type = output.type;
    buffer->dimensions = output.dimensions;
    buffer->device = &device;
    buffer->bytes = output.bytes;
    buffer->has_layout = true;
    buffer->made_in_pass = plugin_state().forward_passes;
    PJRT_Buffer* const donated =
        output.donated_parameter >= 0 &&
                static_cast<std::size_t>(output.donated_parameter) < count &&
                may_be_donated(options, output.donated_parameter)
            ? arguments[output.donated_parameter]
            : nullptr;
    if (donated != nullptr && !donated->deleted) {
      donated->deleted = true;  // the result takes over its memory
      run.results += output.bytes - donated->bytes;
    } else {
      run.results += output.bytes;
    }
    plugin_state().live.insert(buffer.get());
    outputs[i] = buffer.release();
  }
  device.device_memory_tracker.run(program.name, run);
  ++plugin_state().runs;
  if (!sizes_match(program)) ++plugin_state().mismatched_runs;
}

void execute(PJRT_LoadedExecutable_Execute_Args& args) {
  const PJRT_LoadedExecutable& loaded = *args.executable;
  const std::lock_guard lock(plugin_state().mutex);
  for (std::size_t i = 0; i < args.num_devices; ++i)
    for (std::size_t k = 0; k < args.num_args; ++k)
      if (args.argument_lists[i][k]->deleted)
        throw Failure(PJRT_Error_Code_INVALID_ARGUMENT,
                      "an argument of " + loaded.program->name + " was deleted or donated before");
  for (std::size_t i = 0; i < args.num_devices; ++i) {
    PJRT_Device& device =
        args.execute_device != nullptr ? *args.execute_device : *loaded.devices.at(i);
    execute_on(device, *loaded.program, args.options,
               args.num_args > 0 ? args.argument_lists[i] : nullptr, args.num_args,
               args.output_lists[i]);
    if (args.device_complete_events != nullptr) args.device_complete_events[i] = new PJRT_Event;
  }
}

void executable(PJRT_LoadedExecutable_GetExecutable_Args& args) {
  auto made = std::make_unique<PJRT_Executable>();
  made->program = args.loaded_executable->program;
  for (const Output& output : made->program->outputs) {
    made->types.push_back(output.type);
    made->ranks.push_back(output.dimensions.size());
    made->dimensions.insert(made->dimensions.end(), output.dimensions.begin(),
                            output.dimensions.end());
    made->memory_kinds.push_back(kMemoryKind);
    made->memory_kind_sizes.push_back(sizeof kMemoryKind - 1);
  }
  made->fingerprint = std::to_string(std::hash<std::string>{}(made->program->text));
  args.executable = made.release();
}

void destroy(PJRT_Executable_Destroy_Args& args) { delete args.executable; }

void name(PJRT_Executable_Name_Args& args) {
  args.executable_name = args.executable->program->name.data();
  args.executable_name_size = args.executable->program->name.size();
}

void replicas(PJRT_Executable_NumReplicas_Args& args) { args.num_replicas = 1; }
void partitions(PJRT_Executable_NumPartitions_Args& args) { args.num_partitions = 1; }
void output_count(PJRT_Executable_NumOutputs_Args& args) {
  args.num_outputs = args.executable->types.size();
}

void output_types(PJRT_Executable_OutputElementTypes_Args& args) {
  args.output_types = args.executable->types.data();
  args.num_output_types = args.executable->types.size();
}

void output_dimensions(PJRT_Executable_OutputDimensions_Args& args) {
  args.num_outputs = args.executable->ranks.size();
  args.dims = args.executable->dimensions.data();
  args.dim_sizes = args.executable->ranks.data();
}

void output_memories(PJRT_Executable_OutputMemoryKinds_Args& args) {
  args.num_outputs = args.executable->memory_kinds.size();
  args.memory_kinds = args.executable->memory_kinds.data();
  args.memory_kind_sizes = args.executable->memory_kind_sizes.data();
}

void code_size(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args& args) {
  args.size_in_bytes = args.executable->program->code;
}

void memory(PJRT_Executable_GetCompiledMemoryStats_Args& args) {
  const Program& program = *args.executable->program;
  args.generated_code_size_in_bytes = program.code;
  args.argument_size_in_bytes = program.arguments;
  args.temp_size_in_bytes = program.temporaries;
}

void text(PJRT_Executable_OptimizedProgram_Args& args) {
  const Program& program = *args.executable->program;
  args.program->format = program.format.data();
  args.program->format_size = program.format.size();
  if (args.program->code != nullptr) {
    if (args.program->code_size < program.text.size())
      throw Failure(PJRT_Error_Code_INVALID_ARGUMENT,
                    "the buffer is too small for the program's text");
    std::copy(program.text.begin(), program.text.end(), args.program->code);
  }
  args.program->code_size = program.text.size();
}

void fingerprint(PJRT_Executable_Fingerprint_Args& args) {
  args.executable_fingerprint = args.executable->fingerprint.data();
  args.executable_fingerprint_size = args.executable->fingerprint.size();
}

}  // namespace

void fill_programs(PJRT_Api& api) {
  HASTEN_ENTRY(PJRT_Client_Compile, compile);
  HASTEN_ENTRY(PJRT_LoadedExecutable_Destroy, loaded_destroy);
  HASTEN_ENTRY(PJRT_LoadedExecutable_Delete, loaded_delete);
  HASTEN_ENTRY(PJRT_LoadedExecutable_IsDeleted, loaded_is_deleted);
  HASTEN_ENTRY(PJRT_LoadedExecutable_AddressableDevices, loaded_devices);
  HASTEN_ENTRY(PJRT_LoadedExecutable_GetDeviceAssignment, loaded_assignment);
  HASTEN_ENTRY(PJRT_LoadedExecutable_GetExecutable, executable);
  HASTEN_ENTRY(PJRT_LoadedExecutable_Execute, execute);
  HASTEN_ENTRY(PJRT_Executable_Destroy, destroy);
  HASTEN_ENTRY(PJRT_Executable_Name, name);
  HASTEN_ENTRY(PJRT_Executable_NumReplicas, replicas);
  HASTEN_ENTRY(PJRT_Executable_NumPartitions, partitions);
  HASTEN_ENTRY(PJRT_Executable_NumOutputs, output_count);
  HASTEN_ENTRY(PJRT_Executable_OutputElementTypes, output_types);
  HASTEN_ENTRY(PJRT_Executable_OutputDimensions, output_dimensions);
  HASTEN_ENTRY(PJRT_Executable_OutputMemoryKinds, output_memories);
  HASTEN_ENTRY(PJRT_Executable_SizeOfGeneratedCodeInBytes, code_size);
  HASTEN_ENTRY(PJRT_Executable_GetCompiledMemoryStats, memory);
  HASTEN_ENTRY(PJRT_Executable_OptimizedProgram, text);
  HASTEN_ENTRY(PJRT_Executable_Fingerprint, fingerprint);
}

}  // namespace hasten::dry_tpu
