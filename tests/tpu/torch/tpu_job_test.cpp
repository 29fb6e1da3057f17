#include "tpu/device/tpu_job.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "tpu/module/scoped_variables.h"
#include "unit/code_of.h"

namespace torch_tpu_job_test {

using namespace hasten;

namespace {

// The fifth of eight workers, on the second of two machines.
const Worker kFifth{.rank = 4,
                    .world_size = 8,
                    .local_rank = 0,
                    .local_world_size = 4,
                    .machine_rank = 1,
                    .num_machines = 2,
                    .master_addr = "one",
                    .master_port = 29500};
const Worker kSecondOfTwo{.rank = 1,
                          .world_size = 2,
                          .local_rank = 1,
                          .local_world_size = 2,
                          .master_addr = "127.0.0.1",
                          .master_port = 29500};

std::map<std::string, std::string> variables_for(const Worker& worker, TpuJob job,
                                                 const config::Environment& environment = {}) {
  std::map<std::string, std::string> all;
  for (const Variable& variable : tpu_variables(worker, job, environment))
    all[variable.name] = variable.value.value_or("unset");
  return all;
}

}  // namespace

TEST_CASE("tpu job: processes of one machine share its addresses and have their own ranks") {
  auto all = variables_for(kSecondOfTwo, TpuJob::one_slice);
  CHECK(all["TORCH_TPU_SLICEBUILDER_ADDRESSES"] == "localhost:8070,localhost:8071");
  CHECK(all["RANK"] == "1");
  CHECK(all["LOCAL_RANK"] == "1");
  CHECK(all["WORLD_SIZE"] == "2");
  CHECK(all["MASTER_ADDR"] == "127.0.0.1");
  CHECK(all["MASTER_PORT"] == "29500");
  all = variables_for(kSecondOfTwo, TpuJob::one_slice, {{"TORCH_TPU_BASE_PORT", "9000"}});
  CHECK(all["TORCH_TPU_SLICEBUILDER_ADDRESSES"] == "localhost:9000,localhost:9001");
  all = variables_for(kSecondOfTwo, TpuJob::one_slice,
                      {{"TORCH_TPU_SLICEBUILDER_ADDRESSES", "a:1,b:2"}});
  CHECK(all["TORCH_TPU_SLICEBUILDER_ADDRESSES"] == "a:1,b:2");
}

TEST_CASE("tpu job: several machines use their hosts and their chips") {
  const config::Environment good = {{"TPU_WORKER_HOSTNAMES", "one,two"},
                                    {"TORCH_TPU_TOPOLOGY", "2,4,1"}};
  CHECK(variables_for(kFifth, TpuJob::one_slice, good)["TORCH_TPU_SLICEBUILDER_ADDRESSES"] ==
        "one:8070,one:8071,one:8072,one:8073,two:8070,two:8071,two:8072,two:8073");
  for (const char* const missing : {"TPU_WORKER_HOSTNAMES", "TORCH_TPU_TOPOLOGY"}) {
    config::Environment bad = good;
    bad.erase(missing);
    CHECK(code_of([&] { variables_for(kFifth, TpuJob::one_slice, bad); }) == "device.tpu-job");
  }
  for (const char* const port : {"70000", "65533", "0"}) {
    config::Environment bad = good;
    bad["TORCH_TPU_BASE_PORT"] = port;
    CHECK(code_of([&] { variables_for(kFifth, TpuJob::one_slice, bad); }) == "device.tpu-job");
  }
  config::Environment last = good;
  last["TORCH_TPU_BASE_PORT"] = "65532";  // the fourth process has port 65535
  CHECK(code_of([&] { variables_for(kFifth, TpuJob::one_slice, last); }) == "none");
}

TEST_CASE("tpu job: a single process has the chip of its local rank and no others") {
  auto all = variables_for(kSecondOfTwo, TpuJob::separate_chips);
  CHECK(all["WORLD_SIZE"] == "unset");
  CHECK(all["RANK"] == "unset");
  CHECK(all["TPU_VISIBLE_CHIPS"] == "1");
  CHECK(all["TPU_PROCESS_BOUNDS"] == "1,1,1");
  CHECK(variables_for(kSecondOfTwo, TpuJob::separate_chips, {{"TPU_VISIBLE_CHIPS", "3"}})
            .count("TPU_VISIBLE_CHIPS") == 0);
  CHECK(variables_for(kSecondOfTwo, TpuJob::separate_chips, {{"TPU_VISIBLE_DEVICES", "3"}})
            .count("TPU_VISIBLE_CHIPS") == 0);
  for (const char* const list : {"TPU_VISIBLE_DEVICES", "TPU_VISIBLE_CHIPS"}) {
    all = variables_for(kSecondOfTwo, TpuJob::separate_chips, {{list, "2,3"}});
    CHECK(all["TPU_VISIBLE_DEVICES"] == "3");
    CHECK(all["TPU_VISIBLE_CHIPS"] == "3");
  }
  Worker third = kSecondOfTwo;
  third.local_rank = 2, third.local_world_size = 3;
  CHECK(code_of([&] {
          variables_for(third, TpuJob::separate_chips, {{"TPU_VISIBLE_CHIPS", "2,3"}});
        }) == "device.tpu-job");
  CHECK(variables_for({}, TpuJob::separate_chips).count("TPU_VISIBLE_CHIPS") ==
        0);  // a single process has all chips
}

TEST_CASE("tpu job: variables have their old values after their scope") {
  setenv("HASTEN_TEST_SET", "before", 1);
  unsetenv("HASTEN_TEST_UNSET");
  {
    const ScopedVariables scope({{"HASTEN_TEST_SET", std::nullopt}, {"HASTEN_TEST_UNSET", "x"}});
    CHECK(std::getenv("HASTEN_TEST_SET") == nullptr);
    CHECK(std::string(std::getenv("HASTEN_TEST_UNSET")) == "x");
  }
  CHECK(std::string(std::getenv("HASTEN_TEST_SET")) == "before");
  CHECK(std::getenv("HASTEN_TEST_UNSET") == nullptr);
  unsetenv("HASTEN_TEST_SET");
}

}  // namespace torch_tpu_job_test
