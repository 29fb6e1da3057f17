// Slurm's lists of hosts. tests/ranks compares them with Slurm itself.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "hasten/base/text.h"
#include "hasten/launch/worker.h"
#include "unit/code_of.h"

namespace launch_slurm_hosts_test {

using namespace hasten;

TEST_CASE("Slurm's hosts: names, ranges, leading zeros and several brackets are expanded") {
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"login", "login"},
      {"a,b", "a b"},
      {"gpu[1-3]", "gpu1 gpu2 gpu3"},
      {"gpu[01-03,7],login", "gpu01 gpu02 gpu03 gpu7 login"},
      {"gpu[08-11]", "gpu08 gpu09 gpu10 gpu11"},
      {"gpu[8-11]", "gpu8 gpu9 gpu10 gpu11"},
      {"gpu[098-101]", "gpu098 gpu099 gpu100 gpu101"},
      {"gpu[5]", "gpu5"},
      {"r[1-2]n[1-2]", "r1n1 r1n2 r2n1 r2n2"},
      {"r[1-2]n[01,9]-ib", "r1n01-ib r1n9-ib r2n01-ib r2n9-ib"},
      {"[1-2]", "1 2"},
      {"127.0.0.[1-2]", "127.0.0.1 127.0.0.2"},
      {"a[1,3-4,6],b[2],c", "a1 a3 a4 a6 b2 c"},
      {"gpu-a[0-1].site", "gpu-a0.site gpu-a1.site"},
      {"x[000-001]", "x000 x001"},
  };
  for (const auto& [list, hosts] : rows) {
    CAPTURE(list);
    CHECK(join(expand_slurm_hosts(list), " ") == hosts);
  }
  CHECK(expand_slurm_hosts("n[1-65536]").size() == 65536);
  CHECK(expand_slurm_hosts("n[999999999999999998-999999999999999999]").back() ==
        "n999999999999999999");
}

TEST_CASE("Slurm's hosts: invalid lists are refused") {
  for (const char* list : {"",
                           ",",
                           "a,",
                           ",a",
                           "a,,b",
                           "gpu[",
                           "gpu]",
                           "gpu[1",
                           "gpu1]",
                           "gpu[]",
                           "gpu[1-]",
                           "gpu[-2]",
                           "gpu[2-1]",
                           "gpu[a-b]",
                           "gpu[1,,2]",
                           "gpu[1-2-3]",
                           "gpu[[1-2]]",
                           "gpu[1-[2-3]]",
                           "gpu[1]]",
                           "gpu[0x1]",
                           "gpu[1-65537]",
                           "a[1-300]b[1-300]",
                           "n[1-40000],m[1-40000]",
                           "gpu[1-9999999999999999999]",
                           "(null)",
                           "a b",
                           "a\nb",
                           "a\x7f",
                           "gpü1"}) {
    CAPTURE(list);
    CHECK(code_of([&] { expand_slurm_hosts(list); }) == "launch.environment");
  }
}

}  // namespace launch_slurm_hosts_test
