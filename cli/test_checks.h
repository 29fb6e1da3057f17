// File: cli/test_checks.h
// What the ranks of `hasten test` check. A check has two halves: what every rank does, which gives
// facts, and what rank 0 makes of the facts of all. Either throws Wrong or Skip (test_result.h).
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hasten/process/group.h"
#include "rendezvous/store_client.h"
#include "test_result.h"

namespace hasten::cli {

using Json = nlohmann::ordered_json;

// One rank, through all checks.
struct RankTest {
  Worker worker;
  ProcessState process;
  std::chrono::milliseconds limit;  // for each check
  std::string keys;                 // before each key of this test
  rendezvous::StoreClient& store;   // works whatever becomes of the group
  std::optional<Group> group;       // once they have met
  const Group& met() const;         // or Skip
};

struct Told {
  std::string text;
  Json numbers;  // for programs; null: none
};

struct Check {
  const char* name;
  Json (*run)(RankTest& rank);
  // `facts` of rank 0, 1, ...
  Told (*judge)(RankTest& rank, const std::vector<Json>& facts);
};

std::span<const Check> checks_of_ranks();

}  // namespace hasten::cli
