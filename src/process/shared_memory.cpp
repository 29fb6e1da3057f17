#include "process/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "hasten/base/text.h"
#include "process/all_say.h"
#include "process/process_state.h"

namespace hasten {
namespace {

using View = SharedMemory::View;

constexpr int kReadWrite = PROT_READ | PROT_WRITE;

// At an address that the system may map in huge pages: a multiple of their size, as the offset is.
void* map_aligned(const Descriptor& file, std::int64_t offset, std::size_t bytes) {
  constexpr std::size_t kHuge = SharedMemory::kHugePage;
  auto* const room = static_cast<std::byte*>(
      mmap(nullptr, bytes + kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (room == MAP_FAILED) return MAP_FAILED;
  const std::size_t before = (kHuge - reinterpret_cast<std::uintptr_t>(room) % kHuge) % kHuge;
  const std::size_t end = before + SharedMemory::whole_pages(bytes), all = bytes + kHuge;
  void* const at =
      mmap(room + before, bytes, kReadWrite, MAP_SHARED | MAP_FIXED, file.get(), offset);
  if (at == MAP_FAILED) {
    munmap(room, all);
    return at;
  }
  if (before > 0) munmap(room, before);
  if (end < all) munmap(room + end, all - end);
  return at;
}

std::unique_ptr<View> view_of(const Descriptor& file, std::int64_t offset, std::size_t bytes) {
  const bool aligned = bytes >= SharedMemory::kHugePage &&
                       offset % static_cast<std::int64_t>(SharedMemory::kHugePage) == 0;
  void* const at = aligned ? map_aligned(file, offset, bytes)
                           : mmap(nullptr, bytes, kReadWrite, MAP_SHARED, file.get(), offset);
  return at == MAP_FAILED ? nullptr : std::make_unique<View>(at, bytes);
}

// In huge pages, as far as whole ones fit: most systems give shared memory none unasked, and then a
// large sum spends its time on looking up addresses. Where the system cannot (Linux before 6.1),
// the pages stay as they are.
void use_huge_pages(const View& view) {
#ifndef MADV_COLLAPSE
  constexpr int MADV_COLLAPSE = 25;  // of <linux/mman.h> since Linux 6.1
#endif
  const std::size_t whole = view.size() / SharedMemory::kHugePage * SharedMemory::kHugePage;
  if (whole > 0) madvise(view.data(), whole, MADV_COLLAPSE);
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

std::size_t SharedMemory::whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

SharedMemory::View::~View() { munmap(at_, bytes_); }

std::unique_ptr<View> SharedMemory::take(std::int64_t offset, std::size_t bytes) const {
  if (!takes_room(*file_, offset, bytes)) return nullptr;
  auto taken = view(offset, bytes);
  taken ? use_huge_pages(*taken) : give_back(offset, bytes);
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
