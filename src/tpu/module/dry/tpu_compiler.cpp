#include "tpu/module/dry/tpu_compiler.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "tpu/module/dry/module.h"

namespace hasten::dry_tpu {
namespace {

const PJRT_Api& api_of(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw Failure(PJRT_Error_Code_NOT_FOUND, dlerror());
  const auto get = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(handle, "GetPjrtApi"));
  if (get == nullptr)
    throw Failure(PJRT_Error_Code_NOT_FOUND, library + " has no function GetPjrtApi");
  return *get();
}

std::string text_of(const char* bytes, std::size_t size) { return {bytes, size}; }

std::int64_t memory_limit(const PJRT_NamedValue* attributes, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const PJRT_NamedValue& each = attributes[i];
    if (text_of(each.name, each.name_size) == "device_memory_bytes_limit" &&
        each.type == PJRT_NamedValue_kInt64)
      return each.int64_value;
  }
  return 0;
}

std::int64_t bits_of(PJRT_Buffer_Type type) {
  switch (type) {
    case PJRT_Buffer_Type_S16:
    case PJRT_Buffer_Type_U16:
    case PJRT_Buffer_Type_F16:
    case PJRT_Buffer_Type_BF16:
      return 16;
    case PJRT_Buffer_Type_S32:
    case PJRT_Buffer_Type_U32:
    case PJRT_Buffer_Type_F32:
      return 32;
    case PJRT_Buffer_Type_S64:
    case PJRT_Buffer_Type_U64:
    case PJRT_Buffer_Type_F64:
    case PJRT_Buffer_Type_C64:
      return 64;
    case PJRT_Buffer_Type_C128:
      return 128;
    case PJRT_Buffer_Type_S4:
    case PJRT_Buffer_Type_U4:
    case PJRT_Buffer_Type_F4E2M1FN:
      return 4;
    case PJRT_Buffer_Type_S2:
    case PJRT_Buffer_Type_U2:
      return 2;
    case PJRT_Buffer_Type_TOKEN:
    case PJRT_Buffer_Type_INVALID:
      return 0;
    default:
      return 8;
  }
}

// Returns the name that torch_tpu gives the operator in the program's text, or "". It names
// programs that do not compile, and those that have no name when they are compiled.
std::string name_in(const PJRT_Program& program) {
  const std::string_view text(program.code, program.code_size);
  constexpr std::string_view mark = "tt_jit_";
  const std::size_t begin = text.find(mark);
  if (begin == std::string_view::npos) return "";
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  std::size_t end = begin;
  while (end < text.size() && is_word(text[end])) ++end;
  return std::string(text.substr(begin, end - begin));
}

}  // namespace

std::int64_t dense_bytes(PJRT_Buffer_Type type, const std::vector<std::int64_t>& dimensions) {
  std::int64_t elements = 1;
  for (const std::int64_t each : dimensions) elements *= each;
  return (elements * bits_of(type) + 7) / 8;
}

Compiler::Compiler(const std::string& library, const std::string& topology,
                   std::function<void(std::int64_t)> on_compile)
    : api_(api_of(library)), on_compile_(std::move(on_compile)) {
  auto initialize = HASTEN_PJRT_STRUCT(PJRT_Plugin_Initialize_Args);
  check(api_, api_.PJRT_Plugin_Initialize(&initialize));
  find_topology(topology);
  read_topology();
}

void Compiler::find_topology(const std::string& name) {
  auto create = HASTEN_PJRT_STRUCT(PJRT_TopologyDescription_Create_Args);
  create.topology_name = name.data();
  create.topology_name_size = name.size();
  try {
    check(api_, api_.PJRT_TopologyDescription_Create(&create));
    topology_ = create.topology;
    return;
  } catch (const Failure& failure) {
    if (failure.code != PJRT_Error_Code_UNIMPLEMENTED) throw;
  }
  auto client = HASTEN_PJRT_STRUCT(PJRT_Client_Create_Args);
  check(api_, api_.PJRT_Client_Create(&client));
  client_ = client.client;
  auto own = HASTEN_PJRT_STRUCT(PJRT_Client_TopologyDescription_Args);
  own.client = client_;
  check(api_, api_.PJRT_Client_TopologyDescription(&own));
  topology_ = own.topology;
}

void Compiler::read_topology() {
  auto name = HASTEN_PJRT_STRUCT(PJRT_TopologyDescription_PlatformName_Args);
  name.topology = topology_;
  check(api_, api_.PJRT_TopologyDescription_PlatformName(&name));
  topology_info_.platform = text_of(name.platform_name, name.platform_name_size);
  auto version = HASTEN_PJRT_STRUCT(PJRT_TopologyDescription_PlatformVersion_Args);
  version.topology = topology_;
  check(api_, api_.PJRT_TopologyDescription_PlatformVersion(&version));
  topology_info_.version = text_of(version.platform_version, version.platform_version_size);
  auto attributes = HASTEN_PJRT_STRUCT(PJRT_TopologyDescription_Attributes_Args);
  attributes.topology = topology_;
  check(api_, api_.PJRT_TopologyDescription_Attributes(&attributes));
  topology_info_.attributes = attributes.attributes;
  topology_info_.attribute_count = attributes.num_attributes;
  topology_info_.memory = memory_limit(topology_info_.attributes, topology_info_.attribute_count);

  auto devices = HASTEN_PJRT_STRUCT(PJRT_TopologyDescription_GetDeviceDescriptions_Args);
  devices.topology = topology_;
  check(api_, api_.PJRT_TopologyDescription_GetDeviceDescriptions(&devices));
  for (std::size_t i = 0; i < devices.num_descriptions; ++i) {
    const auto query = [&](auto args, auto function) {
      args.device_description = devices.descriptions[i];
      check(api_, function(&args));
      return args;
    };
    const auto id =
        query(HASTEN_PJRT_STRUCT(PJRT_DeviceDescription_Id_Args), api_.PJRT_DeviceDescription_Id);
    const auto kind = query(HASTEN_PJRT_STRUCT(PJRT_DeviceDescription_Kind_Args),
                            api_.PJRT_DeviceDescription_Kind);
    const auto debug = query(HASTEN_PJRT_STRUCT(PJRT_DeviceDescription_DebugString_Args),
                             api_.PJRT_DeviceDescription_DebugString);
    const auto text = query(HASTEN_PJRT_STRUCT(PJRT_DeviceDescription_ToString_Args),
                            api_.PJRT_DeviceDescription_ToString);
    const auto more = query(HASTEN_PJRT_STRUCT(PJRT_DeviceDescription_Attributes_Args),
                            api_.PJRT_DeviceDescription_Attributes);
    topology_info_.devices.push_back({.id = id.id,
                                      .kind = text_of(kind.device_kind, kind.device_kind_size),
                                      .debug = text_of(debug.debug_string, debug.debug_string_size),
                                      .text = text_of(text.to_string, text.to_string_size),
                                      .attributes = more.attributes,
                                      .attribute_count = more.num_attributes});
    if (topology_info_.memory == 0)
      topology_info_.memory = memory_limit(more.attributes, more.num_attributes);
  }
}

const PJRT_NamedValue* Compiler::plugin_attributes(std::size_t& count) const {
  auto args = HASTEN_PJRT_STRUCT(PJRT_Plugin_Attributes_Args);
  check(api_, api_.PJRT_Plugin_Attributes(&args));
  count = args.num_attributes;
  return args.attributes;
}

CompileStatistics Compiler::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

std::shared_ptr<const Program> Compiler::compile(const PJRT_Program& program,
                                                 std::string_view options) {
  const std::string key = std::string(program.code, program.code_size) + std::string(options);
  const std::lock_guard lock(mutex_);  // one at a time: the compiler has threads of its own
  if (const auto found = programs_.find(key); found != programs_.end()) {
    ++statistics_.from_cache;
    return found->second;
  }
  const auto begin = std::chrono::steady_clock::now();
  if (on_compile_) on_compile_(statistics_.compiled + 1);
  try {
    const auto made = std::make_shared<const Program>(compile_program(program, options));
    ++statistics_.compiled;
    statistics_.seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return programs_[key] = made;
  } catch (const Failure& failure) {
    statistics_.failed.push_back({name_in(program), failure.what()});
    throw;
  }
}

Program Compiler::compile_program(const PJRT_Program& program, std::string_view options) {
  PJRT_Executable* executable = nullptr;
  PJRT_LoadedExecutable* loaded = nullptr;
  if (client_ == nullptr) {
    auto args = HASTEN_PJRT_STRUCT(PJRT_Compile_Args);
    args.topology = topology_;
    args.program = &program;
    args.compile_options = options.data();
    args.compile_options_size = options.size();
    check(api_, api_.PJRT_Compile(&args));
    executable = args.executable;
  } else {
    auto args = HASTEN_PJRT_STRUCT(PJRT_Client_Compile_Args);
    args.client = client_;
    args.program = &program;
    args.compile_options = options.data();
    args.compile_options_size = options.size();
    check(api_, api_.PJRT_Client_Compile(&args));
    loaded = args.executable;
    auto inside = HASTEN_PJRT_STRUCT(PJRT_LoadedExecutable_GetExecutable_Args);
    inside.loaded_executable = loaded;
    check(api_, api_.PJRT_LoadedExecutable_GetExecutable(&inside));
    executable = inside.executable;
  }
  Program read = read_program(executable);
  if (read.name.empty()) read.name = name_in(program);
  auto destroy = HASTEN_PJRT_STRUCT(PJRT_Executable_Destroy_Args);
  destroy.executable = executable;
  check(api_, api_.PJRT_Executable_Destroy(&destroy));
  if (loaded != nullptr) {
    auto unload = HASTEN_PJRT_STRUCT(PJRT_LoadedExecutable_Destroy_Args);
    unload.executable = loaded;
    check(api_, api_.PJRT_LoadedExecutable_Destroy(&unload));
  }
  return read;
}

Program Compiler::read_program(PJRT_Executable* executable) const {
  const auto query = [&](auto args, auto function) {
    args.executable = executable;
    check(api_, function(&args));
    return args;
  };
  Program out;
  const auto memory = query(HASTEN_PJRT_STRUCT(PJRT_Executable_GetCompiledMemoryStats_Args),
                            api_.PJRT_Executable_GetCompiledMemoryStats);
  out.arguments = memory.argument_size_in_bytes;
  out.temporaries = memory.temp_size_in_bytes;
  out.code = memory.generated_code_size_in_bytes;

  const auto types = query(HASTEN_PJRT_STRUCT(PJRT_Executable_OutputElementTypes_Args),
                           api_.PJRT_Executable_OutputElementTypes);
  const auto sizes = query(HASTEN_PJRT_STRUCT(PJRT_Executable_OutputDimensions_Args),
                           api_.PJRT_Executable_OutputDimensions);
  const std::int64_t* dimension = sizes.dims;
  for (std::size_t i = 0; i < types.num_output_types; ++i) {
    Output output{.type = types.output_types[i],
                  .dimensions = {dimension, dimension + sizes.dim_sizes[i]}};
    dimension += sizes.dim_sizes[i];
    output.bytes = dense_bytes(output.type, output.dimensions);
    out.outputs.push_back(std::move(output));
  }

  PJRT_Program text = HASTEN_PJRT_STRUCT(PJRT_Program);
  auto args = HASTEN_PJRT_STRUCT(PJRT_Executable_OptimizedProgram_Args);
  args.executable = executable;
  args.program = &text;
  check(api_, api_.PJRT_Executable_OptimizedProgram(&args));
  out.text.resize(text.code_size);
  text.code = out.text.data();
  check(api_, api_.PJRT_Executable_OptimizedProgram(&args));
  out.format = text_of(text.format, text.format_size);
  const std::optional<CompiledModule> module = read_module(out.format, out.text);
  if (!module || module->results.size() != out.outputs.size()) return out;
  out.name = module->name;
  for (const Shape& shape : module->parameters) out.parameters.push_back(device_bytes(shape));
  for (std::size_t i = 0; i < out.outputs.size(); ++i) {
    out.outputs[i].bytes = device_bytes(module->results[i]);
    out.outputs[i].donated_parameter = module->donated_parameters[i];
  }
  return out;
}

}  // namespace hasten::dry_tpu
