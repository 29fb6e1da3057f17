// Memory that ranks share: what a rank opens, and what it does not.
#include "process/shared/shared_memory.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <utility>

#include "base/process_state.h"
#include "hasten/base/text.h"
#include "process/consensus/store_exchange.h"
#include "unit/process/counting_store.h"

using namespace hasten;

namespace {

constexpr std::size_t kBytes = 4096;

// What rank 1 gets from a rank 0 that tells this.
std::unique_ptr<SharedMemory> opened_as(const std::string& told) {
  CountingStore store;
  store.set("test/place", pid_namespace_id() + " ");
  store.set("test/file", told);
  store.add("test/opened/answers", 1);  // rank 0 has it
  return shared_memory(store, "test", {.rank = 1, .size = 2}, kBytes);
}

struct MarkedFile {
  int file = memfd_create("test", MFD_CLOEXEC);
  std::string mark = "0123456789abcdef";
  MarkedFile() {
    REQUIRE(ftruncate(file, kBytes) == 0);
    REQUIRE(pwrite(file, mark.data(), mark.size(), kBytes) == 16);
  }
  ~MarkedFile() { close(file); }
  std::string path() const { return str("/proc/", getpid(), "/fd/", file); }
};

std::string hexadecimal(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

// A control group of this process's own with a limit of memory, where the system lets it make one.
class SmallGroup {
 public:
  explicit SmallGroup(const std::string& limit) {
    for (const auto& [top, file] : {std::pair("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                                    std::pair("/sys/fs/cgroup", "memory.max")}) {
      path_ = str(top, "/hasten_test_", getpid());
      if (mkdir(path_.c_str(), 0700) != 0) continue;
      if (write_to(file, limit)) return;
      rmdir(path_.c_str());
    }
    path_.clear();
  }
  ~SmallGroup() {
    if (exists()) rmdir(path_.c_str());
  }
  bool exists() const { return !path_.empty(); }
  bool join() const { return write_to("cgroup.procs", str(getpid())); }

 private:
  bool write_to(const std::string& file, const std::string& text) const {
    const int to = open((path_ + "/" + file).c_str(), O_WRONLY);
    const auto size = static_cast<ssize_t>(text.size());
    const bool written = to >= 0 && write(to, text.data(), text.size()) == size;
    close(to);
    return written;
  }

  std::string path_;
};

}  // namespace

TEST_CASE("shared memory: what a container does not leave is not taken, and nobody is killed") {
  const SmallGroup group("500000000");
  if (!group.exists()) {
    MESSAGE("skipped: this process may not make a control group");
    return;
  }
  const pid_t child = fork();
  if (child == 0) {
    CountingStore store;
    if (!group.join()) _exit(2);
    const auto memory = shared_memory(store, "test", {.rank = 0, .size = 1}, kBytes);
    const std::int64_t offset = std::int64_t{1} << 42, mebibyte = std::int64_t{1} << 20;
    if (!memory || memory->allocate(offset, static_cast<std::size_t>(900 * mebibyte))) _exit(3);
    // What it took before it met the limit is free again.
    for (int i = 0; i < 10; ++i) {
      if (!memory->allocate(offset, static_cast<std::size_t>(200 * mebibyte))) _exit(4);
      memory->release(offset, static_cast<std::size_t>(200 * mebibyte));
    }
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("shared memory: two ranks have the same bytes") {
  CountingStore store;
  std::vector<std::unique_ptr<SharedMemory>> memory(2);
  in_threads(2, [&](std::int64_t rank) {
    memory[static_cast<std::size_t>(rank)] =
        shared_memory(store, "test", {.rank = rank, .size = 2}, kBytes);
  });
  REQUIRE(memory[0]);
  REQUIRE(memory[1]);
  memory[0]->data()[kBytes - 1] = std::byte{42};
  CHECK(memory[1]->data()[kBytes - 1] == std::byte{42});
  CHECK(memory[1]->size() == kBytes);
}

TEST_CASE("shared memory: a file is taken by its mark alone, and any other is left as it is") {
  const MarkedFile file;
  CHECK(opened_as(str(hexadecimal(file.mark), " ", file.path())) != nullptr);
  CHECK(opened_as(str(hexadecimal("another mark ..."), " ", file.path())) == nullptr);
  CHECK(opened_as("none") == nullptr);
  // A file of the user's under the number that rank 0 has told, with the right bytes in it.
  const std::string path = str("/tmp/hasten-shared-memory-", getpid());
  const int named = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  REQUIRE(pwrite(named, file.mark.data(), file.mark.size(), kBytes) == 16);
  CHECK(opened_as(str(hexadecimal(file.mark), " /proc/", getpid(), "/fd/", named)) == nullptr);
  // The same without a name, on a disk where the temporary folder is one, and a device.
  unlink(path.c_str());
  struct stat state {};
  CHECK(fstat(named, &state) == 0);
  CHECK(state.st_size == static_cast<off_t>(kBytes + 16));
  const int device = open("/dev/null", O_RDWR);
  CHECK(opened_as(str(hexadecimal(file.mark), " /proc/", getpid(), "/fd/", device)) == nullptr);
  close(named);
  close(device);
}

TEST_CASE("shared memory: it holds no program, where the system can say so") {
  CountingStore store;
  const auto memory = shared_memory(store, "test", {.rank = 0, .size = 1}, kBytes);
  REQUIRE(memory);
  const std::string told = text_at(store, "test/file");
  struct stat state {};
  REQUIRE(stat(told.substr(told.find(' ') + 1).c_str(), &state) == 0);
  // Linux before 6.3 does not know the flag.
  constexpr unsigned kNoexecSeal = 8;
  const int probe = memfd_create("probe", kNoexecSeal);
  if (probe >= 0) CHECK((state.st_mode & 0111) == 0);
  close(probe);
}
