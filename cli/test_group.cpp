// Checks that the ranks of `hasten test` form a group and run in turn.
#include "base/seconds.h"
#include "test_checks.h"

#include <cstdint>
#include <set>

#include "base/parse_number.h"

namespace hasten::cli {
namespace {

using Clock = std::chrono::steady_clock;

// This check forms the group of all ranks.

Json form_group(RankContext& rank) {
  if (rank.worker.world_size == 1) {
    rank.group = Group::single();
    throw CheckSkipped("there is one rank");
  }
  const auto began = Clock::now();
  // Shorter than the limit of the check, so that a rank that waits for another one fails by itself
  // and continues.
  rank.group = Group::form(rank.worker, {.timeout = rank.limit * 9 / 10, .watchdog = false});
  return {{"seconds", seconds_since(began)}};
}

CheckOutcome evaluate_group(RankContext& rank, const std::vector<Json>& facts) {
  const double seconds = max_value(facts, "seconds");
  return {str(facts.size(), " ranks in ", fixed(seconds * 1e3, 0), " ms, through the store at ",
              to_text(rank.store.store()), " over TLS"),
          {{"seconds", seconds}}};
}

// This check runs work in single ranks, and lets ranks work in turn.

Json process_execution(RankContext& rank) {
  const ProcessState& process = rank.process;
  const Group& group = rank.require_group();
  const auto runs = [&](const std::string& where) {
    rank.store.append(str(rank.keys, "on/", where), str(process.process_index, " "));
  };
  if (process.is_main_process()) runs("main");
  if (process.is_local_main_process()) runs("local main");
  if (process.is_last_process()) runs("last");
  for (std::int64_t each = 0; each < process.num_processes; ++each) {
    if (process.process_index == each) runs(str("process ", each));
  }
  std::int64_t turn = 0, local_turn = 0;
  {
    const MainProcessFirst first(process, group);
    turn = rank.store.add(rank.keys + "turn", 1);
  }
  {
    const MainProcessFirst first(process, group, /*of_each_machine=*/true);
    local_turn = rank.store.add(str(rank.keys, "turn/", rank.worker.machine_rank), 1);
  }
  return {{"turn", turn}, {"local_turn", local_turn}, {"local_rank", rank.worker.local_rank}};
}

CheckOutcome evaluate_process_execution(RankContext& rank, const std::vector<Json>& facts) {
  const auto expect_runs = [&](const std::string& where, const std::set<std::int64_t>& expected) {
    std::set<std::int64_t> got;
    const auto text = rank.store.get({str(rank.keys, "on/", where)}, rank.limit).front();
    for (const std::string& word : split(text, ' ')) {
      if (word.empty()) continue;
      const auto number = parse_number<std::int64_t>(word);
      if (!number) throw CheckFailed(str("got '", word, "' among the ranks ", text));
      got.insert(*number);
    }
    if (got != expected)
      throw CheckFailed(str("code for ", where, " only has run on ranks ", text));
  };
  std::set<std::int64_t> local_mains;
  const auto size = static_cast<std::int64_t>(facts.size());
  for (std::int64_t each = 0; each < size; ++each) {
    const Json& own = facts[static_cast<std::size_t>(each)];
    const bool is_local_main = own.at("local_rank") == 0;
    if (is_local_main) local_mains.insert(each);
    if (each == 0) expect_equal("the turn of rank 0", own.at("turn").get<std::int64_t>(), 1);
    if (is_local_main)
      expect_equal(str("the turn on its machine of rank ", each),
                   own.at("local_turn").get<std::int64_t>(), 1);
    expect_runs(str("process ", each), {each});
  }
  expect_runs("main", {0});
  expect_runs("last", {size - 1});
  expect_runs("local main", local_mains);
  return {"main processes run first; code for one process runs only there", {}};
}

}  // namespace

std::vector<Check> checks_of_group() {
  return {
      {"group", form_group, evaluate_group},
      {"process execution", process_execution, evaluate_process_execution},
  };
}

}  // namespace hasten::cli
