#include "process/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

#include "hasten/base/text.h"
#include "process/all_say.h"
#include "process/process_state.h"

namespace hasten {
namespace {

using View = SharedMemory::View;

std::unique_ptr<View> view_of(const Descriptor& file, std::int64_t offset, std::size_t bytes) {
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), offset);
  return at == MAP_FAILED ? nullptr : std::make_unique<View>(at, bytes);
}

// Where a process may not make large files, one byte behind the limit would end it by a signal.
bool may_have(std::int64_t offset, std::size_t bytes) {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
         (limit.rlim_cur == RLIM_INFINITY ||
          static_cast<rlim_t>(offset) + static_cast<rlim_t>(bytes) <= limit.rlim_cur);
}

// With all of its pages: where there is no memory for one its first touch would end the process.
bool takes_room(const Descriptor& file, std::int64_t offset, std::size_t bytes) {
  if (!may_have(offset, bytes)) return false;
  int failed = EINTR;
  while (failed == EINTR) failed = posix_fallocate(file.get(), offset, static_cast<off_t>(bytes));
  return failed == 0;
}

std::unique_ptr<SharedMemory> opened(std::unique_ptr<Descriptor> file, std::size_t bytes) {
  auto beginning = file->get() >= 0 ? view_of(*file, 0, bytes) : nullptr;
  if (!beginning) return nullptr;
  return std::make_unique<SharedMemory>(std::move(file), std::move(beginning));
}

}  // namespace

SharedMemory::View::~View() { munmap(at_, bytes_); }

std::unique_ptr<View> SharedMemory::take(std::int64_t offset, std::size_t bytes) const {
  if (!takes_room(*file_, offset, bytes)) return nullptr;
  auto taken = view(offset, bytes);
  if (!taken) give_back(offset, bytes);
  return taken;
}

std::unique_ptr<View> SharedMemory::view(std::int64_t offset, std::size_t bytes) const {
  return view_of(*file_, offset, bytes);
}

void SharedMemory::give_back(std::int64_t offset, std::size_t bytes) const {
  fallocate(file_->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
            static_cast<off_t>(bytes));
}

std::unique_ptr<SharedMemory> shared_memory(c10d::Store& store, const std::string& name,
                                            const RankOptions& options, std::size_t bytes,
                                            const std::string& like) {
  const std::string here = str(processes_seen_here(), " ", like), place = name + "/place",
                    path = name + "/path";
  std::unique_ptr<SharedMemory> memory;
  if (options.rank == 0) {
    auto file = std::make_unique<Descriptor>(memfd_create("hasten", MFD_CLOEXEC));
    store.set(place, here);
    store.set(path, str("/proc/", getpid(), "/fd/", file->get()));
    if (file->get() >= 0 && takes_room(*file, 0, bytes)) memory = opened(std::move(file), bytes);
  } else if (text_at(store, place) == here) {
    const std::string at_rank_0 = text_at(store, path);
    memory =
        opened(std::make_unique<Descriptor>(open(at_rank_0.c_str(), O_RDWR | O_CLOEXEC)), bytes);
  }
  const bool all = all_say(store, name + "/opened", options.rank, options.size, memory != nullptr);
  return all ? std::move(memory) : nullptr;
}

}  // namespace hasten
