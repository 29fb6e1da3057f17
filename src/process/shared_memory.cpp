#include "process/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/descriptor.h"
#include "hasten/base/text.h"
#include "process/all_say.h"
#include "process/process_state.h"

namespace hasten {
namespace {

std::unique_ptr<SharedMemory> mapped(const Descriptor& file, std::size_t bytes) {
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  return at == MAP_FAILED ? nullptr : std::make_unique<SharedMemory>(at, bytes);
}

// With all of its pages: where there is no memory for one its first touch would end the process.
bool takes_room(const Descriptor& file, std::size_t bytes) {
  int failed = EINTR;
  while (failed == EINTR) failed = posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
  return failed == 0;
}

}  // namespace

SharedMemory::~SharedMemory() { munmap(at_, bytes_); }

std::unique_ptr<SharedMemory> shared_memory(c10d::Store& store, const std::string& name,
                                            const RankOptions& options, std::size_t bytes,
                                            const std::string& like) {
  const std::string here = str(processes_seen_here(), " ", like), place = name + "/place",
                    path = name + "/path";
  const auto all_have = [&](bool own) {
    return all_say(store, name + "/opened", options.rank, options.size, own);
  };
  if (options.rank == 0) {
    const Descriptor file(memfd_create("hasten", MFD_CLOEXEC));
    auto memory = file.get() >= 0 && takes_room(file, bytes) ? mapped(file, bytes) : nullptr;
    store.set(place, here);
    store.set(path, str("/proc/", getpid(), "/fd/", file.get()));
    return all_have(memory != nullptr) ? std::move(memory) : nullptr;  // open until all have said
  }
  std::unique_ptr<SharedMemory> memory;
  if (text_at(store, place) == here) {
    const Descriptor file(open(text_at(store, path).c_str(), O_RDWR | O_CLOEXEC));
    if (file.get() >= 0) memory = mapped(file, bytes);
  }
  return all_have(memory != nullptr) ? std::move(memory) : nullptr;
}

}  // namespace hasten
