// File: cli/test_checks.h
// What the ranks of `hasten test` check. A check has two halves: what every rank does, which gives
// facts, and what rank 0 makes of the facts of all. Either throws Wrong or Skip (test_result.h).
#pragma once

#include <chrono>
#include <optional>
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

// All of them, in this order.
std::vector<Check> checks_of_ranks();
std::vector<Check> checks_of_each_alone();
std::vector<Check> checks_of_meeting();
std::vector<Check> checks_of_collectives();
std::vector<Check> checks_of_training();
std::vector<Check> checks_of_bandwidth();
std::vector<Check> checks_of_tpus();  // none where no TPU was asked for

double seconds_since(std::chrono::steady_clock::time_point then);
std::string plural(std::size_t count, const char* word);
// The fact's text where it is the same for all ranks, or Wrong.
std::string same_for_all(const std::vector<Json>& facts, const char* name, const char* title);
// Values of a fact, without repetition and in order: "1" or "2, 4".
std::string values_of(const std::vector<Json>& facts, const char* name);
double greatest(const std::vector<Json>& facts, const char* name);

}  // namespace hasten::cli
