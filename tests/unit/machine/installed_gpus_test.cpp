// Which GPUs a process may use, by CUDA's rules for CUDA_VISIBLE_DEVICES.
#include "machine/installed_gpus.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace machine_installed_gpus_test {

using hasten::config::visible_gpus;
using Names = std::vector<std::string>;

TEST_CASE("visible GPUs: without the variable all are visible, and with an empty one none") {
  CHECK(visible_gpus(nullptr, 3) == Names{"0", "1", "2"});
  CHECK(visible_gpus(nullptr, 0).empty());
  CHECK(visible_gpus("", 3).empty());
  CHECK(visible_gpus("0", 0).empty());
}

TEST_CASE("visible GPUs: the variable gives the GPUs and their order") {
  CHECK(visible_gpus("2,0", 3) == Names{"2", "0"});
  CHECK(visible_gpus(" 1 , 2", 3) == Names{"1", "2"});
  CHECK(visible_gpus("GPU-8932f937,MIG-5f1c", 2) == Names{"GPU-8932f937", "MIG-5f1c"});
}

TEST_CASE("visible GPUs: the first entry that is no GPU ends the list") {
  CHECK(visible_gpus("0,-1,1", 3) == Names{"0"});
  CHECK(visible_gpus("0,7,1", 3) == Names{"0"});
  CHECK(visible_gpus("1,,2", 3) == Names{"1"});
  CHECK(visible_gpus("none", 3).empty());
  CHECK(visible_gpus("NoDevFiles", 3).empty());
}

}  // namespace machine_installed_gpus_test
