#include "process/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "hasten/base/text.h"
#include "process/all_say.h"

namespace hasten {
namespace {

// A file that is closed at the end of its scope.
class File {
 public:
  explicit File(int number) : number_(number) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (number_ >= 0) close(number_);
  }
  int number() const { return number_; }

 private:
  int number_;
};

std::unique_ptr<SharedMemory> mapped(const File& file, std::size_t bytes) {
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  return at == MAP_FAILED ? nullptr : std::make_unique<SharedMemory>(at, bytes);
}

// With all of its pages: where there is no memory for one its first touch would end the process.
bool takes_room(const File& file, std::size_t bytes) {
  int failed = EINTR;
  while (failed == EINTR) failed = posix_fallocate(file.number(), 0, static_cast<off_t>(bytes));
  return failed == 0;
}

// Ranks look at each other's processes, which they can where all count the same ones: containers of
// one machine may not.
std::string processes_seen_here() {
  struct stat info {};
  if (stat("/proc/self/ns/pid", &info) != 0) return "unknown";
  return str(info.st_dev, ":", info.st_ino);
}

std::string text_of(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

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
    const File file(memfd_create("hasten", MFD_CLOEXEC));
    auto memory = file.number() >= 0 && takes_room(file, bytes) ? mapped(file, bytes) : nullptr;
    store.set(place, here);
    store.set(path, str("/proc/", getpid(), "/fd/", file.number()));
    return all_have(memory != nullptr) ? std::move(memory) : nullptr;  // open until all have said
  }
  std::unique_ptr<SharedMemory> memory;
  if (text_of(store.get(place)) == here) {
    const File file(open(text_of(store.get(path)).c_str(), O_RDWR | O_CLOEXEC));
    if (file.number() >= 0) memory = mapped(file, bytes);
  }
  return all_have(memory != nullptr) ? std::move(memory) : nullptr;
}

}  // namespace hasten
