#include "device/device.h"

#include <doctest/doctest.h>

#include <set>

#include "device/collective_backend.h"

namespace device_device_test {

using namespace hasten;

TEST_CASE("device: each kind of device is found by its type, and an unknown one has the defaults") {
  std::set<at::DeviceType> types;
  for (const Device* device : all_devices()) {
    CHECK(&device_of(at::Device(device->type())) == device);
    types.insert(device->type());
  }
  CHECK(types.size() == all_devices().size());
  const Device& unknown = device_of(at::kMeta);
  CHECK(types.count(unknown.type()) == 0);
  CHECK(unknown.traits().is_built_in);
  CHECK(unknown.traits().adamw == AdamWKernel::fused);
  CHECK_FALSE(unknown.is_available());
  CHECK(unknown.collectives() == nullptr);
  CHECK(unknown.generators().empty());
}

TEST_CASE("device: the CPU is available, serves every request and has a generator") {
  const Device& cpu = device_of(at::kCPU);
  CHECK(&choose_device({.cpu = true, .required = "tpu"}) == &cpu);
  CHECK(cpu.is_available());
  CHECK(cpu.is_chosen({}));
  CHECK(cpu.place({}, CollectiveChoice::host).device == at::Device(at::kCPU));
  CHECK(cpu.place({}, CollectiveChoice::host).collectives == CollectiveChoice::host);
  REQUIRE(cpu.generators().size() == 1);
  CHECK(cpu.generators()[0].name == "cpu");
  CHECK(cpu.compiled_programs() == 0);
  cpu.check_fork();
}

TEST_CASE("device: a device that has to be opened is chosen if it is requested and allowed") {
  const DeviceRequest request = {.required = "tpu"};
  const Device& chosen = choose_device(request);
  CHECK_FALSE(chosen.traits().is_built_in);
  CHECK(&choose_device({.environment = {{"ACCELERATE_USE_TPU", "true"}}}) == &chosen);
  CHECK(&choose_device({.environment = {{"ACCELERATE_USE_TPU", "false"}}}) != &chosen);
  CHECK(choose_device({.required = "tpu", .only_built_in = true}).traits().is_built_in);
}

TEST_CASE("device: the backends of devices have the names of their options") {
  std::set<std::string> names;
  for (const Device* device : all_devices()) {
    const CollectiveBackend* const own = device->collectives();
    if (own == nullptr) continue;
    CHECK(names.insert(own->name()).second);
  }
  CHECK(names == std::set<std::string>{"nccl", "tpu_dist"});
}

}  // namespace device_device_test
