// File: tpu/module/dry/tpu_compiler.h (internal)
// The compiler inside a PJRT library. The one in libtpu compiles for a named topology, and needs no
// TPU on this machine. A library without named topologies (a CPU engine) compiles for its own
// devices.
//
//   Compiler compiler("/.../libtpu.so", "v5e:2x2", nullptr);
//   const auto program = compiler.compile(text, options);
//
// Each program is compiled once. Throws Failure with the compiler's own text. Thread rule: any
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tpu/module/dry/pjrt.h"

namespace hasten::dry_tpu {

struct Output {
  PJRT_Buffer_Type type = PJRT_Buffer_Type_INVALID;
  std::vector<std::int64_t> dimensions;
  std::int64_t bytes = 0;               // on the device
  std::int64_t donated_parameter = -1;  // the argument whose memory it takes over, or -1
};

struct Program {
  std::string name;
  std::vector<std::int64_t> parameters;  // bytes on the device; empty if unknown
  std::vector<Output> outputs;
  std::int64_t arguments = 0, temporaries = 0, code = 0;  // bytes, summed by the compiler
  std::string format, text;                               // the optimized program
};

struct DeviceInfo {
  int id = 0, process = 0;
  std::string kind, debug, text;
  const PJRT_NamedValue* attributes = nullptr;  // valid as long as the process
  std::size_t attribute_count = 0;
};

struct TopologyInfo {
  std::string platform, version;
  const PJRT_NamedValue* attributes = nullptr;
  std::size_t attribute_count = 0;
  std::vector<DeviceInfo> devices;
  std::int64_t memory = 0;  // bytes of a device that programs may use; 0 if unknown
};

struct CompileStatistics {
  std::int64_t compiled = 0, from_cache = 0;
  double seconds = 0;
  struct Failed {
    std::string program, message;
  };
  std::vector<Failed> failed;
};

// Returns the bytes without padding, for tensors whose layout is not known.
std::int64_t dense_bytes(PJRT_Buffer_Type type, const std::vector<std::int64_t>& dimensions);

class Compiler {
 public:
  // Unless `on_compile` is empty, it is called with the number of each program before the program
  // is compiled.
  Compiler(const std::string& library, const std::string& topology,
           std::function<void(std::int64_t)> on_compile);

  std::shared_ptr<const Program> compile(const PJRT_Program& program, std::string_view options);
  const TopologyInfo& topology() const { return topology_info_; }
  // Returns whether programs are compiled for the named topology instead of the library's own
  // devices.
  bool ahead_of_time() const { return client_ == nullptr; }
  const PJRT_NamedValue* plugin_attributes(std::size_t& count) const;
  CompileStatistics statistics() const;

 private:
  void find_topology(const std::string& name);
  void read_topology();
  Program compile_program(const PJRT_Program& program, std::string_view options);
  Program read_program(PJRT_Executable* executable) const;

  const PJRT_Api& api_;
  std::function<void(std::int64_t)> on_compile_;
  PJRT_TopologyDescription* topology_ = nullptr;
  PJRT_Client* client_ = nullptr;
  TopologyInfo topology_info_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Program>, std::less<>> programs_;
  CompileStatistics statistics_;
};

}  // namespace hasten::dry_tpu
