// The TPU variables of each process.
#include "tpu/launch/tpu_variables.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "launch/launch_device.h"

namespace launch_tpu_variables_test {

using namespace hasten;

namespace {

using Variables = std::map<std::string, std::string>;

Round round_of(std::int64_t processes, std::int64_t machines = 1) {
  return {.num_machines = machines, .world_size = processes * machines, .processes = processes};
}

std::vector<std::string> chips(std::size_t count, const char* generation = "v5e") {
  return std::vector<std::string>(count, generation);
}

Variables variables_for(const TpuVariables& tpu_variables, std::int64_t local) {
  const VariableList all = tpu_variables.variables_of(local);
  return {all.begin(), all.end()};
}

std::string refusal(std::int64_t processes, const std::vector<std::string>& installed,
                    const config::Environment& environment = {}, std::int64_t machines = 1) {
  try {
    const TpuVariables tpu_variables(round_of(processes, machines), environment, installed);
  } catch (const Error& error) {
    return error.code();
  }
  return "none";
}

}  // namespace

TEST_CASE(
    "tpu variables: each process has its own chip, and all have the same topology and addresses") {
  const TpuVariables tpu_variables(round_of(4), {}, chips(4));
  const Variables first = variables_for(tpu_variables, 0);
  CHECK(first.at("ACCELERATE_USE_TPU") == "true");
  CHECK(first.at("TORCH_TPU_TOPOLOGY") == "2,2,1");
  CHECK(first.at("TORCH_TPU_DEVICES_PER_HOST") == "4");
  const auto addresses = split(first.at("TORCH_TPU_SLICEBUILDER_ADDRESSES"), ',');
  CHECK(addresses.size() == 4);
  CHECK(std::set<std::string>(addresses.begin(), addresses.end()).size() == 4);
  for (const std::string& address : addresses) CHECK(starts_with(address, "localhost:"));
  for (std::int64_t local = 0; local < 4; ++local) {
    Variables here = variables_for(tpu_variables, local);
    CHECK(here.at("TPU_VISIBLE_DEVICES") == str(local));
    CHECK(here.at("TPU_VISIBLE_CHIPS") == str(local));
    here["TPU_VISIBLE_DEVICES"] = here["TPU_VISIBLE_CHIPS"] = "0";
    CHECK(here == first);
  }
}

TEST_CASE("tpu variables: topologies are those that torch_tpu knows for a generation") {
  const std::map<std::string, std::map<std::int64_t, std::string>> all = {
      {"v4", {{1, "1,1,1"}, {2, "1,2,1"}, {4, "2,2,1"}, {8, "2,2,2"}}},
      {"v5p", {{1, "1,1,1"}, {2, "1,2,1"}, {4, "2,2,1"}, {8, "2,2,2"}}},
      {"v5e", {{1, "1,1,1"}, {4, "2,2,1"}, {8, "2,4,1"}}},
      {"v6e", {{1, "1,1,1"}, {4, "2,2,1"}, {8, "2,4,1"}}},
      {"7x", {{2, "1,1,1,2"}, {4, "1,2,1,2"}, {8, "2,2,1,2"}}}};
  for (const auto& [generation, topologies] : all) {
    for (std::int64_t count = 1; count <= 8; ++count) {
      CAPTURE(generation);
      CAPTURE(count);
      const auto installed = chips(8, generation.c_str());
      const auto found = topologies.find(count);
      if (found == topologies.end()) {
        CHECK(refusal(count, installed) == "launch.tpu-processes");
      } else {
        const TpuVariables tpu_variables(round_of(count), {}, installed);
        CHECK(variables_for(tpu_variables, 0).at("TORCH_TPU_TOPOLOGY") == found->second);
      }
    }
  }
}

TEST_CASE("tpu variables: variables that are set stay, and only visible chips are used") {
  const config::Environment set = {{"TORCH_TPU_TOPOLOGY", "1,3,1"},
                                   {"TORCH_TPU_SLICEBUILDER_ADDRESSES", "a:1,b:2"},
                                   {"TORCH_TPU_DEVICES_PER_HOST", "9"},
                                   {"TPU_VISIBLE_DEVICES", "3,1"}};
  const TpuVariables tpu_variables(round_of(2), set, chips(4));
  for (const auto& [name, value] : set) {
    if (name != "TPU_VISIBLE_DEVICES") CHECK(variables_for(tpu_variables, 0).count(name) == 0);
  }
  CHECK(variables_for(tpu_variables, 0).at("TPU_VISIBLE_CHIPS") == "3");
  CHECK(variables_for(tpu_variables, 1).at("TPU_VISIBLE_DEVICES") == "1");
}

TEST_CASE("tpu variables: more processes than chips, and a missing chip, are refused") {
  CHECK(refusal(8, chips(4)) == "launch.tpu-processes");
  CHECK(refusal(4, chips(8), {{"TPU_VISIBLE_CHIPS", "0,1"}}) == "launch.tpu-processes");
  CHECK(refusal(1, chips(4), {{"TPU_VISIBLE_CHIPS", "4"}}) == "launch.environment");
  CHECK(refusal(1, chips(4), {{"TPU_VISIBLE_CHIPS", "x"}}) == "launch.environment");
  CHECK(refusal(1, chips(4), {{"TPU_VISIBLE_CHIPS", std::string(20, '9')}}) ==
        "launch.environment");
  CHECK(refusal(4, chips(4)) == "none");
  // The message names the variable that is set.
  for (const std::string name : {"TPU_VISIBLE_DEVICES", "TPU_VISIBLE_CHIPS"}) {
    const config::Environment set = {{name, "4"}};
    for (const std::int64_t processes : {1, 2})
      CHECK_THROWS_WITH(TpuVariables(round_of(processes), set, chips(4)),
                        doctest::Contains(name.c_str()));
  }
  if (!config::installed_tpus().empty()) return;
  CHECK(refusal(1, {}) == "device.tpu-missing");
  CHECK(refusal(3, {}, {{"TPU_LIBRARY_PATH", "/a/plugin.so"}}) == "none");
}

TEST_CASE("tpu variables: several machines need their host names and topology") {
  const config::Environment hosts = {{"TPU_WORKER_HOSTNAMES", "a,b"}};
  config::Environment all = hosts;
  all["TORCH_TPU_TOPOLOGY"] = "2,4,1";
  CHECK(refusal(4, chips(4), {}, 2) == "config.missing");
  CHECK(refusal(4, chips(4), hosts, 2) == "config.missing");
  CHECK(refusal(4, chips(4), all, 3) == "config.missing");
  for (const char* const port : {"x", "0", "65533"}) {
    config::Environment bad = all;
    bad["TORCH_TPU_BASE_PORT"] = port;  // the fourth process would have port 65536
    CHECK(refusal(4, chips(4), bad, 2) == "launch.environment");
  }
  const TpuVariables tpu_variables(round_of(2, 2), all, chips(4));
  CHECK(variables_for(tpu_variables, 1).at("TORCH_TPU_SLICEBUILDER_ADDRESSES") ==
        "a:8070,a:8071,b:8070,b:8071");
  CHECK(variables_for(tpu_variables, 1).at("TPU_VISIBLE_CHIPS") == "1");
}

TEST_CASE("tpu variables: ranks on TPUs get their chips, bf16 and the user's variables") {
  if (!config::installed_tpus().empty()) return;
  LaunchOptions options;
  CHECK(TpuRankVariables(options, round_of(2)).variables_of(1).empty());
  options.tpu = true;
  options.mixed_precision = Precision::bf16;
  options.tpu_env = {"A=1", "B=x=y"};
  setenv("TPU_LIBRARY_PATH", "/a/plugin.so", 1);
  const VariableList all = TpuRankVariables(options, round_of(2)).variables_of(1);
  unsetenv("TPU_LIBRARY_PATH");
  const Variables found(all.begin(), all.end());
  CHECK(found.at("TPU_VISIBLE_CHIPS") == "1");
  CHECK(found.at("XLA_USE_BF16") == "1");
  CHECK(found.at("A") == "1");
  CHECK(found.at("B") == "x=y");
}

TEST_CASE("tpu variables: the launcher and notebook_launcher get them from the launch devices") {
  if (!config::installed_tpus().empty()) return;
  LaunchOptions options;
  choose_available_device(options);
  CHECK_FALSE(options.tpu);
  CHECK_FALSE(device_processes(options).has_value());
  CHECK(device_variables(options, round_of(2)) == std::vector<VariableList>(2));
  setenv("TPU_LIBRARY_PATH", "/a/plugin.so", 1);
  options.use_cpu = true;
  choose_available_device(options);
  const bool with_cpu = options.tpu;
  options.use_cpu = false;
  choose_available_device(options);
  const std::vector<VariableList> all = device_variables(options, round_of(2));
  const std::optional<std::int64_t> processes = device_processes(options);
  unsetenv("TPU_LIBRARY_PATH");
  CHECK_FALSE(with_cpu);
  CHECK(options.tpu);
  CHECK(processes == 8);
  REQUIRE(all.size() == 2);
  CHECK(Variables(all[1].begin(), all[1].end()).at("TPU_VISIBLE_CHIPS") == "1");
  CHECK(redact_device_variable("TORCH_TPU_SLICEBUILDER_ADDRESSES=localhost:1") ==
        "TORCH_TPU_SLICEBUILDER_ADDRESSES=localhost:PORT");
}

TEST_CASE("tpu variables: bf16 sets Accelerate's variables, and messages hide the ports") {
  CHECK(bf16_variables(Precision::no, true).empty());
  CHECK(bf16_variables(Precision::fp16, false).empty());
  CHECK(bf16_variables(Precision::bf16, false) == VariableList{{"XLA_USE_BF16", "1"}});
  CHECK(bf16_variables(Precision::bf16, true) ==
        VariableList{{"ACCELERATE_DOWNCAST_BF16", "true"}, {"XLA_DOWNCAST_BF16", "1"}});
  CHECK(without_ports("TORCH_TPU_SLICEBUILDER_ADDRESSES=localhost:1,localhost:2") ==
        "TORCH_TPU_SLICEBUILDER_ADDRESSES=localhost:PORT,localhost:PORT");
  CHECK(without_ports("TORCH_TPU_SLICEBUILDER_ADDRESSES=a:8070") ==
        "TORCH_TPU_SLICEBUILDER_ADDRESSES=a:8070");
  CHECK(without_ports("A=localhost:1") == "A=localhost:1");
}

}  // namespace launch_tpu_variables_test
