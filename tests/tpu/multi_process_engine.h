// Lets several processes run one program on their devices, as libtpu does. Each process has a CPU
// engine with one device for every process. It shows torch_tpu all devices, but only its own device
// is addressable. A program that communicates runs in every process on all devices; the processes
// exchange its arguments in files. TPU_PROCESS_ADDRESSES and CLOUD_TPU_TASK_ID describe the
// processes, as for libtpu, and HASTEN_TEST_EXCHANGE_FOLDER is the folder for the files.
#pragma once

#include <xla_plugins/xla_cpu_pjrt/include/pjrt_c_api.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace hasten::test {

class MultiProcessEngine {
 public:
  // Returns the number of processes in the environment, or 1 if there are none or no folder is set.
  static std::int64_t number();

  explicit MultiProcessEngine(const PJRT_Api& engine);
  // Replaces Execute and the functions about devices in the plugin's table.
  void install(PJRT_Api& table);

 private:
  using Bytes = std::vector<char>;

  static MultiProcessEngine& one();
  PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* args);
  PJRT_Error* execute_on_all(PJRT_LoadedExecutable_Execute_Args* args,
                             const std::vector<PJRT_Device*>& devices, bool communicates);
  // Returns whether the program's optimized text communicates with other devices.
  bool has_communication(PJRT_LoadedExecutable* executable);
  PJRT_Executable* program_of(PJRT_LoadedExecutable* executable) const;
  std::vector<PJRT_Device*> devices_of(PJRT_LoadedExecutable* executable) const;
  // Returns the concatenated arguments of every process.
  std::vector<Bytes> exchange(const Bytes& own);
  Bytes bytes_of(PJRT_Buffer* buffer) const;
  PJRT_Buffer* copy_to(PJRT_Device* device, PJRT_Buffer* like, const char* bytes) const;
  std::int64_t id_of(PJRT_Device* device) const;
  void wait_for(PJRT_Event* event) const;
  void check(PJRT_Error* error) const;

  const PJRT_Api& engine_;
  std::filesystem::path folder_;
  std::int64_t rank_, number_;
  PJRT_Client* client_ = nullptr;
  std::mutex mutex_;           // for communicates_
  std::mutex exchange_mutex_;  // one communicating program runs at a time
  std::int64_t exchanges_ = 0;
  std::map<const PJRT_LoadedExecutable*, bool> communicates_;
};

}  // namespace hasten::test
