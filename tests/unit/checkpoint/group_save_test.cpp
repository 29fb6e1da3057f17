#include "checkpoint/group_save.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <memory>
#include <new>
#include <string>
#include <vector>

#include "formats/deferred_writes.h"
#include "hasten/base/files.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/formats/safetensors.h"
#include "unit/code_of.h"
#include "unit/data/error_of.h"

namespace checkpoint_group_save_test {

using namespace hasten;
namespace fs = std::filesystem;

TEST_CASE("group save: a checkpoint is written at once if there is no memory for its copy") {
  const TemporaryDirectory folder;
  std::vector<std::string> warnings;
  GroupSave save(Group::single(), [&](const std::string& text) { warnings.push_back(text); });
  const auto start = [&](const std::string& name, bool has_memory) {
    const auto checkpoint = std::make_shared<CheckpointSave>(folder.path() / name);
    const auto copy = [&] {
      save_safetensors(checkpoint->path() / "a.safetensors", {{"a", at::ones({2})}});
      if (!has_memory && DeferredWrites::active() != nullptr) throw std::bad_alloc();
      save_safetensors(checkpoint->path() / "b.safetensors", {{"b", at::ones({3})}});
    };
    save.start(
        copy, /*commits=*/true, [checkpoint] { checkpoint->publish(); },
        [checkpoint] { checkpoint->rotate({}); });
  };
  for (const char* const name : {"checkpoint-1", "checkpoint-2"}) {
    CAPTURE(name);
    start(name, /*has_memory=*/false);
    CHECK(save.is_in_flight());
    CHECK(save.has_finished());
    verify_checkpoint(folder.path() / name);
    CHECK(fs::exists(folder.path() / name / "a.safetensors"));
    CHECK(fs::exists(folder.path() / name / "b.safetensors"));
    CHECK(save.finish());
    REQUIRE(warnings.size() == 1);
    CHECK(contains(warnings.front(), "too little memory for the copy"));
  }
  start("checkpoint-3", /*has_memory=*/true);
  CHECK(save.finish());
  verify_checkpoint(folder.path() / "checkpoint-3");

  // The error of such a save is reported as that of any other.
  {
    const auto checkpoint = std::make_shared<CheckpointSave>(folder.path() / "checkpoint-4");
    save.start(
        [] {
          if (DeferredWrites::active() != nullptr) throw std::bad_alloc();
          throw IoError("io.write", {.what = "the disk is full"});
        },
        /*commits=*/true, [checkpoint] { checkpoint->publish(); }, [] {});
  }
  CHECK_FALSE(save.finish());
  REQUIRE(warnings.size() == 2);
  CHECK(contains(warnings.back(), "the disk is full"));
  CHECK(code_of([&] { save.wait(); }) == "io.write");
  CHECK_FALSE(fs::exists(folder.path() / "checkpoint-4"));
}

TEST_CASE("group save: an error of the copy that is not about memory is thrown") {
  GroupSave save(Group::single(), [](const std::string&) {});
  const auto copy = [] { throw UsageError("safetensors.unsupported", {.what = "a tensor"}); };
  CHECK(code_of([&] {
          save.start(
              copy, true, [] {}, [] {});
        }) == "safetensors.unsupported");
  CHECK_FALSE(save.is_in_flight());
}

}  // namespace checkpoint_group_save_test
