// Several processes as the plugin shows them to torch_tpu: where libtpu would have one chip here
// and see those of the others, each process has a CPU engine with a device for every process, of
// which it shows its own. A program that speaks to other devices runs in every process on all of
// them, with arguments that the processes have handed each other in files. Processes are told as
// libtpu is (TPU_PROCESS_ADDRESSES, CLOUD_TPU_TASK_ID), and the folder by HASTEN_TEST_TOGETHER.
#pragma once

#include <xla_plugins/xla_cpu_pjrt/include/pjrt_c_api.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace hasten::test {

class Together {
 public:
  // How many processes the environment tells of; 1 where it tells of none, or of no folder.
  static std::int64_t number();

  explicit Together(const PJRT_Api& engine);
  // Puts what is told of devices, and Execute, into the plugin's table.
  void put_into(PJRT_Api& table);

 private:
  using Bytes = std::vector<char>;

  static Together& one();
  PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* args);
  PJRT_Error* execute_on_all(PJRT_LoadedExecutable_Execute_Args* args,
                             const std::vector<PJRT_Device*>& devices, bool speaking);
  // Whether it speaks to other devices, by its optimized text.
  bool speaks(PJRT_LoadedExecutable* executable);
  PJRT_Executable* program_of(PJRT_LoadedExecutable* executable) const;
  std::vector<PJRT_Device*> devices_of(PJRT_LoadedExecutable* executable) const;
  // The arguments' bytes, one after the other, of every process.
  std::vector<Bytes> exchanged(const Bytes& own);
  Bytes bytes_of(PJRT_Buffer* buffer) const;
  PJRT_Buffer* copy_to(PJRT_Device* device, PJRT_Buffer* like, const char* bytes) const;
  std::int64_t id_of(PJRT_Device* device) const;
  void wait_for(PJRT_Event* event) const;
  void check(PJRT_Error* error) const;

  const PJRT_Api& engine_;
  std::filesystem::path folder_;
  std::int64_t rank_, number_;
  PJRT_Client* client_ = nullptr;
  std::mutex mutex_, meeting_;  // of what is known; of programs that speak, one at a time
  std::int64_t meetings_ = 0;
  std::map<const PJRT_LoadedExecutable*, bool> speaks_;
};

}  // namespace hasten::test
