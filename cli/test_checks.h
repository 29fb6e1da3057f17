// File: cli/test_checks.h
// The checks of the ranks of `hasten test`. Every rank calls `run`, which returns facts, and rank 0
// calls `evaluate` with the facts of all ranks. `run` may throw CheckFailed or CheckSkipped
// (test_result.h), `evaluate` only CheckFailed.
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

// One rank during all checks.
struct RankContext {
  Worker worker;
  ProcessState process;
  std::chrono::milliseconds limit;     // for each check
  std::string keys;                    // the prefix of each key of this test
  rendezvous::StoreClient& store;      // works even if the group does not
  std::optional<Group> group;          // set once the ranks have formed it
  const Group& require_group() const;  // throws CheckSkipped if it is not set
};

// The result of a check.
struct CheckOutcome {
  std::string text;
  Json numbers;  // the same for programs; null if there are none
};

struct Check {
  const char* name;
  Json (*run)(RankContext& rank);
  // `facts` holds the facts of rank 0, 1, ...
  CheckOutcome (*evaluate)(RankContext& rank, const std::vector<Json>& facts);
};

// Returns all checks, in the order of the functions below.
std::vector<Check> checks_of_ranks();
std::vector<Check> checks_of_single_ranks();
std::vector<Check> checks_of_group();
std::vector<Check> checks_of_collectives();
std::vector<Check> checks_of_training();
std::vector<Check> checks_of_bandwidth();
std::vector<Check> checks_of_tpus();  // empty if no TPU was asked for

// Returns the text of a fact. Throws CheckFailed if it is not the same for all ranks.
std::string same_for_all(const std::vector<Json>& facts, const char* name, const char* title);
// Returns the different values of a fact in the order of ranks: "1" or "2, 4".
std::string values_of(const std::vector<Json>& facts, const char* name);
double max_value(const std::vector<Json>& facts, const char* name);

}  // namespace hasten::cli
