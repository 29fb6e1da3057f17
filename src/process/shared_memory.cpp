#include "process/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <random>

#include "hasten/base/text.h"
#include "process/all_say.h"

namespace hasten {
namespace {

std::unique_ptr<SharedMemory> mapped(int file, std::size_t bytes) {
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return at == MAP_FAILED ? nullptr : std::make_unique<SharedMemory>(at, bytes);
}

// With all of its pages: where there is no room the first touch of one would end the process.
std::unique_ptr<SharedMemory> made(const std::string& name, std::size_t bytes) {
  const int file = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  if (file < 0) return nullptr;
  const bool has_room = posix_fallocate(file, 0, static_cast<off_t>(bytes)) == 0;
  auto memory = has_room ? mapped(file, bytes) : nullptr;
  close(file);
  return memory;
}

std::unique_ptr<SharedMemory> opened(const std::string& name, std::size_t bytes) {
  const int file = shm_open(name.c_str(), O_RDWR, 0600);
  if (file < 0) return nullptr;
  auto memory = mapped(file, bytes);
  close(file);
  return memory;
}

// Ranks look at each other's process ids, which mean something only where all count the same
// processes: containers may share memory and not that.
std::string processes_seen_here() {
  struct stat info {};
  if (stat("/proc/self/ns/pid", &info) != 0) return "unknown";
  return str(info.st_dev, ":", info.st_ino);
}

std::string new_name() {
  std::random_device random;
  return str("/hasten-", getpid(), "-", random(), "-", random());
}

}  // namespace

SharedMemory::~SharedMemory() { munmap(at_, bytes_); }

std::unique_ptr<SharedMemory> shared_memory(c10d::Store& store, const std::string& name,
                                            const RankOptions& options, std::size_t bytes) {
  const bool makes = options.rank == 0;
  const std::string named = name + "/name", seen = name + "/processes";
  std::unique_ptr<SharedMemory> memory;
  std::string file;
  if (makes) {
    file = new_name();
    memory = made(file, bytes);
    store.set(named, file);
    store.set(seen, processes_seen_here());
  } else {
    const auto said = store.get(named), whose = store.get(seen);
    file.assign(said.begin(), said.end());
    if (std::string(whose.begin(), whose.end()) == processes_seen_here())
      memory = opened(file, bytes);
  }
  const bool all = all_say(store, name + "/opened", options.rank, options.size, memory != nullptr);
  if (makes) shm_unlink(file.c_str());  // what is mapped stays
  return all ? std::move(memory) : nullptr;
}

}  // namespace hasten
