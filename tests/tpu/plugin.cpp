// A plugin with PJRT's C interface that runs programs on a CPU engine instead of a TPU. torch_tpu
// loads it from TPU_LIBRARY_PATH.
//
//   HASTEN_TEST_ENGINE           the CPU engine, pjrt_c_api_cpu_plugin.so
//   HASTEN_TEST_DEVICES          the number of devices; default 1
//   HASTEN_TEST_EXCHANGE_FOLDER  a folder for the exchanges of several processes
//   HASTEN_TEST_REFUSED          set: gives the engine options that it refuses, so it has no client
//   HASTEN_TEST_LIBTPU           libtpu.so, whose compiler also compiles each program
//   HASTEN_TEST_TOPOLOGY         the topology for that, such as v5e:2x2
//   HASTEN_TEST_PROGRAMS         a JSON file for the programs and their memory, written at the end
//
// hasten_test_programs() returns the number of programs so far.
#include <dlfcn.h>
#include <xla_plugins/xla_cpu_pjrt/include/pjrt_c_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "multi_process_engine.h"
#include "pjrt_struct.h"

namespace {

using namespace hasten::test;
using Json = nlohmann::ordered_json;

std::string variable(const char* name, const char* default_value = "") {
  const char* const value = std::getenv(name);
  return value == nullptr ? default_value : value;
}

const PJRT_Api* load_api(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw std::runtime_error(dlerror());
  const auto get = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(handle, "GetPjrtApi"));
  if (get == nullptr) throw std::runtime_error(dlerror());
  return get();
}

// libtpu's compiler for a topology. It needs no TPU.
class TpuCompiler {
 public:
  TpuCompiler(const std::string& libtpu, const std::string& topology) : api_(*load_api(libtpu)) {
    auto initialize = PJRT_STRUCT(PJRT_Plugin_Initialize_Args);
    check(api_.PJRT_Plugin_Initialize(&initialize));
    auto create = PJRT_STRUCT(PJRT_TopologyDescription_Create_Args);
    create.topology_name = topology.data();
    create.topology_name_size = topology.size();
    check(api_.PJRT_TopologyDescription_Create(&create));
    topology_ = create.topology;
  }

  // Returns the program's memory on a TPU in bytes, or why it does not compile.
  Json compile(const PJRT_Client_Compile_Args& request) const {
    auto args = PJRT_STRUCT(PJRT_Compile_Args);
    args.topology = topology_;
    args.program = request.program;
    args.compile_options = request.compile_options;
    args.compile_options_size = request.compile_options_size;
    if (PJRT_Error* const error = api_.PJRT_Compile(&args))
      return {{"error", take_message(api_, error)}};
    auto memory = PJRT_STRUCT(PJRT_Executable_GetCompiledMemoryStats_Args);
    memory.executable = args.executable;
    check(api_.PJRT_Executable_GetCompiledMemoryStats(&memory));
    auto destroy = PJRT_STRUCT(PJRT_Executable_Destroy_Args);
    destroy.executable = args.executable;
    check(api_.PJRT_Executable_Destroy(&destroy));
    return {{"arguments", memory.argument_size_in_bytes},
            {"temporaries", memory.temp_size_in_bytes},
            {"code", memory.generated_code_size_in_bytes}};
  }

 private:
  void check(PJRT_Error* error) const {
    if (error != nullptr) throw std::runtime_error(take_message(api_, error));
  }

  const PJRT_Api& api_;
  PJRT_TopologyDescription* topology_ = nullptr;
};

class Plugin {
 public:
  Plugin() : engine_(*load_api(variable("HASTEN_TEST_ENGINE"))) {
    // The copy has the size of the engine's table, which may have a later version than the header.
    table_.resize(engine_.struct_size);
    std::memcpy(table_.data(), &engine_, table_.size());
    table().PJRT_Client_Create = [](PJRT_Client_Create_Args* args) { return one().create(args); };
    table().PJRT_Client_Compile = [](PJRT_Client_Compile_Args* args) {
      return one().compile(args);
    };
    if (const std::string libtpu = variable("HASTEN_TEST_LIBTPU"); !libtpu.empty())
      tpu_ = new TpuCompiler(libtpu, variable("HASTEN_TEST_TOPOLOGY", "v5e:2x2"));
  }
  ~Plugin() {
    if (const std::string path = variable("HASTEN_TEST_PROGRAMS"); !path.empty())
      std::ofstream(path) << report().dump(1) << '\n';
  }

  static Plugin& one() {
    static Plugin plugin;
    return plugin;
  }

  PJRT_Api& table() { return *reinterpret_cast<PJRT_Api*>(table_.data()); }
  std::int64_t seen() {
    const std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  // Replaces the options for a TPU's client, because the engine does not know them.
  PJRT_Error* create(PJRT_Client_Create_Args* args) {
    // torch_tpu sets the variables for the other processes just before it creates the client.
    if (MultiProcessEngine::number() > 1) (new MultiProcessEngine(engine_))->install(table());
    if (!variable("HASTEN_TEST_REFUSED").empty()) return engine_.PJRT_Client_Create(args);
    auto devices = PJRT_STRUCT(PJRT_NamedValue);
    devices.name = "cpu_device_count";
    devices.name_size = std::strlen(devices.name);
    devices.type = PJRT_NamedValue_kInt64;
    devices.int64_value = std::max<std::int64_t>(MultiProcessEngine::number(),
                                                 std::stoll(variable("HASTEN_TEST_DEVICES", "1")));
    devices.value_size = 1;
    PJRT_Client_Create_Args with = *args;
    with.create_options = &devices;
    with.num_options = 1;
    PJRT_Error* const error = engine_.PJRT_Client_Create(&with);
    args->client = with.client;
    return error;
  }

  PJRT_Error* compile(PJRT_Client_Compile_Args* args) {
    {
      const std::lock_guard lock(mutex_);
      ++seen_;
      if (tpu_ != nullptr) add(tpu_->compile(*args));
    }
    return engine_.PJRT_Client_Compile(args);
  }

  void add(Json program) {
    program["program"] = seen_;
    (program.contains("error") ? failed_ : compiled_).push_back(std::move(program));
  }

  Json report() const {
    return {{"programs", seen_},
            {"compiled_for_tpu", compiled_.size()},
            {"failed", failed_},
            {"compiled", compiled_}};
  }

  const PJRT_Api& engine_;
  std::vector<char> table_;
  TpuCompiler* tpu_ = nullptr;
  std::mutex mutex_;
  std::int64_t seen_ = 0;
  Json compiled_ = Json::array(), failed_ = Json::array();
};

}  // namespace

extern "C" const PJRT_Api* GetPjrtApi() { return &Plugin::one().table(); }
extern "C" std::int64_t hasten_test_programs() { return Plugin::one().seen(); }
