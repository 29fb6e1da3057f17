// Memory that ranks share: the files that a rank opens, and the files that it refuses.
#include "process/shared/shared_memory.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <utility>

#include "base/hexadecimal.h"
#include "base/process_state.h"
#include "hasten/base/text.h"
#include "process/consensus/store_exchange.h"
#include "unit/process/counting_store.h"

namespace process_shared_memory_test {

using namespace hasten;

namespace {

constexpr std::size_t kBytes = 4096;

// The memory that rank 1 opens after rank 0 has sent this text.
std::unique_ptr<SharedMemory> open_sent_file(const std::string& file_text) {
  CountingStore store;
  store.set("test/location", pid_namespace_id() + " ");
  store.set("test/file", file_text);
  store.add("test/opened/answers", 1);  // rank 0 has opened it
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
  return to_hex({reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()});
}

// A control group of this process with a memory limit, if the system allows one.
class MemoryLimitedGroup {
 public:
  explicit MemoryLimitedGroup(const std::string& limit) {
    for (const auto& [top, file] : {std::pair("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                                    std::pair("/sys/fs/cgroup", "memory.max")}) {
      path_ = str(top, "/hasten_test_", getpid());
      if (mkdir(path_.c_str(), 0700) != 0) continue;
      if (write_to(file, limit)) return;
      rmdir(path_.c_str());
    }
    path_.clear();
  }
  ~MemoryLimitedGroup() {
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

TEST_CASE("shared memory: it stays within the limit of a container, and no process is killed") {
  const MemoryLimitedGroup group("500000000");
  if (!group.exists()) {
    MESSAGE("skipped: this process may not create a control group");
    return;
  }
  const pid_t child = fork();
  if (child == 0) {
    CountingStore store;
    if (!group.join()) _exit(2);
    const auto memory = shared_memory(store, "test", {.rank = 0, .size = 1}, kBytes);
    const std::int64_t offset = std::int64_t{1} << 42, mebibyte = std::int64_t{1} << 20;
    if (!memory || memory->allocate(offset, static_cast<std::size_t>(900 * mebibyte))) _exit(3);
    // The pages that were allocated before the limit was reached are free again.
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
  run_in_threads(2, [&](std::int64_t rank) {
    memory[static_cast<std::size_t>(rank)] =
        shared_memory(store, "test", {.rank = rank, .size = 2}, kBytes);
  });
  REQUIRE(memory[0]);
  REQUIRE(memory[1]);
  memory[0]->data()[kBytes - 1] = std::byte{42};
  CHECK(memory[1]->data()[kBytes - 1] == std::byte{42});
  CHECK(memory[1]->size() == kBytes);
}

TEST_CASE("shared memory: a file is opened only by its mark, and any other stays unchanged") {
  const MarkedFile file;
  CHECK(open_sent_file(str(hexadecimal(file.mark), " ", file.path())) != nullptr);
  CHECK(open_sent_file(str(hexadecimal("another mark ..."), " ", file.path())) == nullptr);
  CHECK(open_sent_file("none") == nullptr);
  // A user's file that has the descriptor number that rank 0 sent, and contains the right bytes.
  const std::string path = str("/tmp/hasten-shared-memory-", getpid());
  const int named = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  REQUIRE(pwrite(named, file.mark.data(), file.mark.size(), kBytes) == 16);
  CHECK(open_sent_file(str(hexadecimal(file.mark), " /proc/", getpid(), "/fd/", named)) == nullptr);
  // The same file after its name is removed (on disk if the temporary folder is), and a device.
  unlink(path.c_str());
  struct stat state {};
  CHECK(fstat(named, &state) == 0);
  CHECK(state.st_size == static_cast<off_t>(kBytes + 16));
  const int device = open("/dev/null", O_RDWR);
  CHECK(open_sent_file(str(hexadecimal(file.mark), " /proc/", getpid(), "/fd/", device)) ==
        nullptr);
  close(named);
  close(device);
}

TEST_CASE("shared memory: it is not executable, if the system supports that") {
  CountingStore store;
  const auto memory = shared_memory(store, "test", {.rank = 0, .size = 1}, kBytes);
  REQUIRE(memory);
  const std::string file_text = text_at(store, "test/file");
  struct stat state {};
  REQUIRE(stat(file_text.substr(file_text.find(' ') + 1).c_str(), &state) == 0);
  // Linux before 6.3 does not know the flag.
  constexpr unsigned kNoexecSeal = 8;
  const int probe = memfd_create("probe", kNoexecSeal);
  if (probe >= 0) CHECK((state.st_mode & 0111) == 0);
  close(probe);
}

}  // namespace process_shared_memory_test
