#include "process/shared/shared_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <optional>

#include "base/control_groups.h"
#include "base/hexadecimal.h"
#include "base/process_state.h"
#include "hasten/base/text.h"
#include "process/consensus/store_exchange.h"

namespace hasten {
namespace {

using View = SharedMemory::View;

constexpr int kReadWrite = PROT_READ | PROT_WRITE;

// Maps a range at an address that allows huge pages: a multiple of their size, like the offset.
void* map_aligned(const Descriptor& file, std::int64_t offset, std::size_t bytes) {
  constexpr std::size_t kHuge = SharedMemory::kHugePage;
  auto* const reserved = static_cast<std::byte*>(
      mmap(nullptr, bytes + kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (reserved == MAP_FAILED) return MAP_FAILED;
  const std::size_t before = (kHuge - reinterpret_cast<std::uintptr_t>(reserved) % kHuge) % kHuge;
  const std::size_t end = before + SharedMemory::whole_pages(bytes), all = bytes + kHuge;
  void* const at =
      mmap(reserved + before, bytes, kReadWrite, MAP_SHARED | MAP_FIXED, file.get(), offset);
  if (at == MAP_FAILED) {
    munmap(reserved, all);
    return at;
  }
  if (before > 0) munmap(reserved, before);
  if (end < all) munmap(reserved + end, all - end);
  return at;
}

std::unique_ptr<View> view_of(const Descriptor& file, std::int64_t offset, std::size_t bytes) {
  const bool aligned = bytes >= SharedMemory::kHugePage &&
                       offset % static_cast<std::int64_t>(SharedMemory::kHugePage) == 0;
  void* const at = aligned ? map_aligned(file, offset, bytes)
                           : mmap(nullptr, bytes, kReadWrite, MAP_SHARED, file.get(), offset);
  return at == MAP_FAILED ? nullptr : std::make_unique<View>(at, bytes);
}

// Moves the view into huge pages as far as whole ones fit. Most systems do not use them for shared
// memory by default, and then a large sum spends its time on translating addresses. If the system
// cannot do it (Linux before 6.1), the pages stay as they are.
void use_huge_pages(const View& view) {
#ifndef MADV_COLLAPSE
  constexpr int MADV_COLLAPSE = 25;  // in <linux/mman.h> since Linux 6.1
#endif
  const std::size_t whole = view.size() / SharedMemory::kHugePage * SharedMemory::kHugePage;
  if (whole > 0) madvise(view.data(), whole, MADV_COLLAPSE);
}

// Returns whether the process's limit of file sizes allows the range. A byte beyond the limit would
// end the process by a signal.
bool is_within_file_size_limit(std::int64_t offset, std::size_t bytes) {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
         (limit.rlim_cur == RLIM_INFINITY ||
          static_cast<rlim_t>(offset) + static_cast<rlim_t>(bytes) <= limit.rlim_cur);
}

// If a control group leaves no room, the first page beyond its limit ends the process. Several
// ranks may check this at the same time and then take a chunk each, so room for several chunks must
// be left.
constexpr std::size_t kChunkBytes = std::size_t{4} << 20, kLeftFree = std::size_t{64} << 20;

bool is_allowed(std::size_t bytes) {
  const auto allowance = memory_allowance();
  return !allowance || static_cast<std::size_t>(*allowance) >= bytes + kLeftFree;
}

bool allocate_chunk(const Descriptor& file, std::int64_t offset, std::size_t bytes) {
  if (!is_allowed(bytes)) return false;
  int failed = EINTR;
  while (failed == EINTR) failed = posix_fallocate(file.get(), offset, static_cast<off_t>(bytes));
  return failed == 0;
}

void free_pages(const Descriptor& file, std::int64_t offset, std::size_t bytes) {
  fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
            static_cast<off_t>(bytes));
}

// Allocates all pages of a range, because the first use of a page without memory would end the
// process. Returns false, with nothing allocated, if there is no room.
bool allocate_pages(const Descriptor& file, std::int64_t offset, std::size_t bytes) {
  if (!is_within_file_size_limit(offset, bytes)) return false;
  for (std::size_t allocated = 0; allocated < bytes; allocated += kChunkBytes) {
    const std::size_t chunk = std::min(kChunkBytes, bytes - allocated);
    if (allocate_chunk(file, offset + static_cast<std::int64_t>(allocated), chunk)) continue;
    free_pages(file, offset, allocated + chunk);
    return false;
  }
  return true;
}

std::unique_ptr<SharedMemory> map_memory(std::unique_ptr<Descriptor> file, std::size_t bytes) {
  auto beginning = file->get() >= 0 ? view_of(*file, 0, bytes) : nullptr;
  if (!beginning) return nullptr;
  return std::make_unique<SharedMemory>(std::move(file), std::move(beginning));
}

// A random number that no other file contains, stored after the bytes that the ranks use. It
// detects that a process has opened another file by mistake: a clone of a virtual machine has the
// same boot id, and another /proc has different process numbers.
using Mark = std::array<unsigned char, 16>;

std::optional<Mark> write_mark(const Descriptor& file, std::size_t at) {
  Mark mark;
  if (getrandom(mark.data(), mark.size(), 0) != static_cast<ssize_t>(mark.size()))
    return std::nullopt;
  const ssize_t written = pwrite(file.get(), mark.data(), mark.size(), static_cast<off_t>(at));
  return written == static_cast<ssize_t>(mark.size()) ? std::optional(mark) : std::nullopt;
}

// Returns whether this is a regular file without a name, such as memfd_create makes.
bool is_nameless_memory(const struct stat& state) {
  return S_ISREG(state.st_mode) && state.st_nlink == 0;
}

bool is_marked(const Descriptor& file, std::size_t at, const std::string& expected) {
  struct stat state {};
  struct statfs system {};
  if (fstat(file.get(), &state) != 0 || fstatfs(file.get(), &system) != 0) return false;
  Mark mark;
  return is_nameless_memory(state) && system.f_type == TMPFS_MAGIC &&
         pread(file.get(), mark.data(), mark.size(), static_cast<off_t>(at)) ==
             static_cast<ssize_t>(mark.size()) &&
         to_hex(mark) == expected;
}

// Makes a file that cannot be executed, because a system may refuse files that can. Linux before
// 6.3 does not know the flag.
std::unique_ptr<Descriptor> new_file() {
#ifndef MFD_NOEXEC_SEAL
  constexpr unsigned MFD_NOEXEC_SEAL = 8;
#endif
  int file = memfd_create("hasten", MFD_CLOEXEC | MFD_NOEXEC_SEAL);
  if (file < 0 && errno == EINVAL) file = memfd_create("hasten", MFD_CLOEXEC);
  return std::make_unique<Descriptor>(file);
}

// Makes the memory on rank 0 and stores "MARK PATH" for the others, or "none" if there is no
// memory.
std::unique_ptr<SharedMemory> create_memory(c10d::Store& store, const std::string& key,
                                            std::size_t bytes) {
  auto file = new_file();
  const bool is_allocated = file->get() >= 0 && allocate_pages(*file, 0, bytes + sizeof(Mark));
  const auto mark = is_allocated ? write_mark(*file, bytes) : std::nullopt;
  store.set(key, mark ? str(to_hex(*mark), " /proc/", getpid(), "/fd/", file->get()) : "none");
  return mark ? map_memory(std::move(file), bytes) : nullptr;
}

// Opens the memory on another rank. It opens only a file of this kind, because opening a device may
// have side effects.
std::unique_ptr<SharedMemory> open_memory(const std::string& announcement, std::size_t bytes) {
  const auto words = split(announcement, ' ');
  if (words.size() != 2) return nullptr;
  struct stat state {};
  if (stat(words[1].c_str(), &state) != 0 || !is_nameless_memory(state)) return nullptr;
  auto file = std::make_unique<Descriptor>(open(words[1].c_str(), O_RDWR | O_CLOEXEC));
  if (file->get() < 0 || !is_marked(*file, bytes, words[0])) return nullptr;
  return map_memory(std::move(file), bytes);
}

}  // namespace

std::size_t SharedMemory::whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

SharedMemory::View::~View() { munmap(at_, bytes_); }

std::unique_ptr<View> SharedMemory::allocate(std::int64_t offset, std::size_t bytes) const {
  if (!allocate_pages(*file_, offset, bytes)) return nullptr;
  auto allocated = view(offset, bytes);
  if (allocated) {
    use_huge_pages(*allocated);
  } else {
    release(offset, bytes);
  }
  return allocated;
}

std::unique_ptr<View> SharedMemory::view(std::int64_t offset, std::size_t bytes) const {
  return view_of(*file_, offset, bytes);
}

void SharedMemory::release(std::int64_t offset, std::size_t bytes) const {
  free_pages(*file_, offset, bytes);
}

std::unique_ptr<SharedMemory> shared_memory(c10d::Store& store, const std::string& name,
                                            const RankOptions& options, std::size_t bytes,
                                            const std::string& required_match) {
  const std::string here = str(pid_namespace_id(), " ", required_match),
                    location = name + "/location", file = name + "/file";
  std::unique_ptr<SharedMemory> memory;
  if (options.rank == 0) {
    store.set(location, here);
    memory = create_memory(store, file, bytes);
  } else if (text_at(store, location) == here) {
    memory = open_memory(text_at(store, file), bytes);
  }
  const bool all = is_true_on_all_ranks(store, name + "/opened", options.size, memory != nullptr);
  return all ? std::move(memory) : nullptr;
}

}  // namespace hasten
