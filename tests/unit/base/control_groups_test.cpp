// The memory that control groups allow, in simulated containers.
#include "base/control_groups.h"
#include "hasten/base/files.h"

#include <doctest/doctest.h>

#include <fstream>
#include <string>

namespace base_control_groups_test {

using namespace hasten;
namespace fs = std::filesystem;

namespace {

class Container {
 public:
  Container& file(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
    return *this;
  }
  Container& group(const std::string& path, const std::string& max, const std::string& current) {
    const std::string folder = "sys/fs/cgroup" + path;
    return file(folder + "/memory.max", max).file(folder + "/memory.current", current);
  }
  std::optional<std::int64_t> allowance() const { return memory_allowance(root_); }

 private:
  TemporaryDirectory folder_;
  const fs::path& root_ = folder_.path();
};

}  // namespace

TEST_CASE("memory allowance: a group without a limit has no allowance") {
  Container container;
  CHECK_FALSE(container.allowance());
  container.file("proc/self/cgroup", "0::/pods/train").group("/pods/train", "max", "1000");
  CHECK_FALSE(container.allowance());
  for (const char* wrong : {"", "much", "-"}) {
    container.group("/pods/train", wrong, "1000");
    CHECK_FALSE(container.allowance());
  }
}

TEST_CASE("memory allowance: the strictest of the group and all its ancestors applies") {
  Container container;
  container.file("proc/self/cgroup", "0::/pods/train").group("/pods/train", "5000", "1000");
  CHECK(container.allowance() == 4000);
  container.group("/pods", "9000", "7000");
  CHECK(container.allowance() == 2000);
  container.group("", "9000", "10000");
  CHECK(container.allowance() == 0);
  // The group's own path does not exist in a container whose root is the group.
  container.file("proc/self/cgroup", "0::/../../elsewhere").group("", "9000", "8500");
  CHECK(container.allowance() == 500);
}

TEST_CASE("memory allowance: file pages that can be dropped count as free") {
  Container container;
  container.file("proc/self/cgroup", "0::/").group("", "5000", "5000");
  container.file("sys/fs/cgroup/memory.stat",
                 "anon 1000\nfile 4000\nshmem 500\ninactive_file 3000\nactive_file 500");
  CHECK(container.allowance() == 3500);
}

TEST_CASE("memory allowance: version 1 uses other file names") {
  Container container;
  const std::string folder = "sys/fs/cgroup/memory/docker/box/";
  container.file("proc/self/cgroup", "5:cpu,cpuacct:/docker/box\n4:memory:/docker/box\n0::/init")
      .file(folder + "memory.limit_in_bytes", "5000")
      .file(folder + "memory.usage_in_bytes", "2000")
      .file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712")
      .file("sys/fs/cgroup/memory/memory.usage_in_bytes", "700000");
  CHECK(container.allowance() == 3000);
  container.file(folder + "memory.stat", "inactive_file 9\ntotal_inactive_file 400\n");
  CHECK(container.allowance() == 3400);
}

}  // namespace base_control_groups_test
