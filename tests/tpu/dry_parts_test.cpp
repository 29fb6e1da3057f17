// The parts of a dry TPU that need no plugin: sizes in tiles, a compiled program's shapes, the
// memory tracker, and what is read from its visits to phases.
#include <doctest/doctest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <utility>
#include <vector>

#include "hasten/tpu/anatomy/detail/tpu_estimate.h"
#include "tpu/module/dry/device_memory_tracker.h"
#include "tpu/module/dry/module.h"

namespace tpu_dry_parts_test {

using namespace hasten::dry_tpu;

namespace {

constexpr int kF32 = 11, kBF16 = 16, kTuple = 13;

// These functions write XLA's messages with the numbers of their fields.
std::string layout(const std::vector<std::int64_t>& minor_to_major,
                   const std::vector<std::vector<std::int64_t>>& tiles) {
  std::string text;
  protozero::pbf_writer message(text);
  message.add_packed_int64(1, minor_to_major.begin(), minor_to_major.end());
  for (const auto& tile : tiles) {
    std::string inside;
    protozero::pbf_writer(inside).add_packed_int64(1, tile.begin(), tile.end());
    message.add_message(6, inside);
  }
  return text;
}

std::string shape(int type, const std::vector<std::int64_t>& sizes,
                  const std::string& layout_text) {
  std::string text;
  protozero::pbf_writer message(text);
  message.add_enum(2, type);
  message.add_packed_int64(3, sizes.begin(), sizes.end());
  message.add_message(5, layout_text);
  return text;
}

std::string tuple(const std::vector<std::string>& parts) {
  std::string text;
  protozero::pbf_writer message(text);
  message.add_enum(2, kTuple);
  for (const std::string& part : parts) message.add_message(4, part);
  return text;
}

// Returns a program whose result 1 reuses the memory of parameter 1.
std::string program(const std::vector<std::string>& parameters, const std::string& result) {
  std::string shapes, entry, aliases, text;
  protozero::pbf_writer inside(shapes);
  for (const std::string& each : parameters) inside.add_message(1, each);
  inside.add_message(2, result);
  const std::vector<std::int64_t> second = {1};
  protozero::pbf_writer alias(entry);
  alias.add_packed_int64(1, second.begin(), second.end());
  alias.add_int64(2, 1);
  protozero::pbf_writer(aliases).add_message(1, entry);
  protozero::pbf_writer message(text);
  message.add_string(1, "tt_jit_mm");
  message.add_message(4, shapes);
  message.add_message(8, aliases);
  return text;
}

// Returns what an estimate has for visits to these phases, each with the bytes of tensors when it
// began.
std::int64_t before_last_step(const std::vector<std::pair<std::string, std::int64_t>>& visits) {
  using Json = nlohmann::ordered_json;
  const Json usage = {{"tensors", 0}, {"temporaries", 0}, {"code", 0}, {"program", ""}};
  Json json = {{"topology", "v5e:2x2"},
               {"compiled_for", "cpu"},
               {"ahead_of_time", false},
               {"devices", 4},
               {"memory", 0},
               {"programs", 1},
               {"compile_seconds", 0.5},
               {"runs", 1},
               {"reads", 0},
               {"failed", Json::array()},
               {"unpadded_bytes", 0},
               {"mismatched_runs", 0},
               {"activations", 0},
               {"peak", usage},
               {"now", usage},
               {"visits", Json::array()}};
  for (const auto& [phase, bytes] : visits)
    json["visits"].push_back({{"phase", phase}, {"tensors_before", bytes}, {"peak", usage}});
  return hasten::anatomy::read_tpu_estimate(json.dump()).before_last_step;
}

}  // namespace

TEST_CASE("dry tpu: tiles pad tensors on the device, as in libtpu's sums") {
  const std::vector<std::vector<std::int64_t>> wide = {{8, 128}}, pairs = {{8, 128}, {2, 1}};
  CHECK(device_bytes({.element_bits = 32, .dimensions = {}, .tiles = {{128}}}) == 512);
  CHECK(device_bytes({.element_bits = 32, .dimensions = {2, 4}, .tiles = {{2, 128}}}) == 1024);
  CHECK(device_bytes({.element_bits = 32, .dimensions = {64, 64}, .tiles = wide}) == 32768);
  CHECK(
      device_bytes(
          {.element_bits = 32, .dimensions = {64, 32}, .minor_to_major = {0, 1}, .tiles = wide}) ==
      16384);
  CHECK(device_bytes({.element_bits = 16, .dimensions = {9, 130}, .tiles = pairs}) == 16 * 256 * 2);
  CHECK(device_bytes({.element_bits = 32, .dimensions = {3, 5, 7}}) == 3 * 5 * 7 * 4);
  CHECK(device_bytes({.element_bits = 4, .dimensions = {3}}) == 2);
  CHECK(device_bytes({.element_bits = 32, .dimensions = {0, 7}, .tiles = wide}) == 0);
}

TEST_CASE("dry tpu: a compiled program has the layouts of its arguments and results") {
  const std::string tiled = layout({1, 0}, {{8, 128}}), plain = layout({0}, {});
  const std::string text = program({shape(kF32, {64, 64}, tiled), shape(kBF16, {7}, plain)},
                                   tuple({shape(kF32, {64, 64}, tiled), shape(kBF16, {7}, plain)}));
  const auto read = read_module("hlo", text);
  REQUIRE(read);
  CHECK(read->name == "tt_jit_mm");
  REQUIRE(read->parameters.size() == 2);
  REQUIRE(read->results.size() == 2);
  CHECK(device_bytes(read->parameters[0]) == 32768);
  CHECK(device_bytes(read->results[1]) == 14);
  CHECK(read->donated_parameters == std::vector<std::int64_t>{-1, 1});

  std::string with_config;
  protozero::pbf_writer(with_config).add_message(1, text);
  CHECK(read_module("hlo_with_config", with_config)->results.size() == 2);
  CHECK_FALSE(read_module("mlir", text));
  // Text that is cut anywhere is refused or has fewer shapes; nothing is read beyond its end.
  for (std::size_t end = 0; end < text.size(); ++end) {
    const std::string cut = text.substr(0, end);
    const auto less = read_module("hlo", cut);
    if (less) CHECK(less->parameters.size() <= 2);
  }
}

TEST_CASE(
    "dry tpu: the memory tracker adds tensors, temporaries and code, and has each phase's peak") {
  DeviceMemoryTracker device_memory_tracker;
  device_memory_tracker.add(1000);
  device_memory_tracker.load(50);
  device_memory_tracker.enter("forward");
  device_memory_tracker.run("a", {.results = 300, .temporaries = 70});
  device_memory_tracker.run("b", {.results = 0, .temporaries = 10, .released_arguments = 200});
  device_memory_tracker.enter("backward");
  device_memory_tracker.add(5);
  device_memory_tracker.unload(50);
  device_memory_tracker.remove(1000);

  CHECK(device_memory_tracker.now().total() == 105);
  CHECK(device_memory_tracker.peak().total() == 1000 + 50 + 300 + 70);
  CHECK(device_memory_tracker.peak().program == "a");
  REQUIRE(device_memory_tracker.visits().size() == 3);
  const PhaseVisit &setup = device_memory_tracker.visits()[0],
                   &forward = device_memory_tracker.visits()[1],
                   &backward = device_memory_tracker.visits()[2];
  CHECK(setup.phase == "setup");
  CHECK(setup.peak.total() == 1050);
  CHECK(forward.tensors_before == 1000);
  CHECK(forward.tensors_after == 1100);
  CHECK(forward.peak.temporaries == 70);
  CHECK(backward.tensors_before == 1100);
  CHECK(backward.tensors_after == 105);
  CHECK(backward.peak.total() == 1155);
}

TEST_CASE("dry tpu: a step begins with the first forward pass of its window") {
  CHECK(before_last_step({{"setup", 0}, {"forward", 100}, {"between", 1}, {"forward", 200}}) ==
        200);
  CHECK(before_last_step({{"forward", 100},
                          {"backward", 150},
                          {"forward", 200},
                          {"backward", 1},
                          {"optimizer", 1}}) == 100);
  CHECK(before_last_step({{"forward", 50},
                          {"backward", 1},
                          {"optimizer", 1},
                          {"forward", 100},
                          {"backward", 150},
                          {"between", 1},
                          {"forward", 300},
                          {"backward", 1},
                          {"optimizer", 1},
                          {"forward", 400}}) == 100);
  // Steps during the backward pass interrupt its phase.
  CHECK(before_last_step({{"forward", 50},
                          {"backward", 1},
                          {"optimizer", 1},
                          {"backward", 1},
                          {"forward", 100},
                          {"backward", 1},
                          {"optimizer", 1},
                          {"backward", 1}}) == 100);
  // A loop whose optimizer is not prepared has no optimizer phase.
  CHECK(before_last_step({{"forward", 100}, {"backward", 1}, {"forward", 200}, {"backward", 1}}) ==
        200);
}

}  // namespace tpu_dry_parts_test
