#include "hasten/search/search.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/log.h"
#include "hasten/base/text.h"
#include "search/journal.h"
#include "search/median_pruner.h"
#include "unit/code_of.h"

namespace search_search_test {

using namespace hasten;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

SearchSpace small_space() {
  SearchSpace space;
  space.log_uniform("rate", 1e-5, 1e-1).choice("size", {8, 16});
  return space;
}

std::optional<double> rate_of(Trial& trial) { return trial.value("rate"); }

void append(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::app | std::ios::binary) << text;
}

std::vector<std::string> lines_of(const std::filesystem::path& file) {
  auto lines = split(read_file(file), '\n');
  lines.pop_back();
  return lines;
}

// Collects the log lines while it exists.
struct LoggedLines {
  LoggedLines() {
    set_log_sink([this](std::string_view line) { text += std::string(line) + "\n"; });
  }
  ~LoggedLines() { set_log_sink({}); }
  std::string text;
};

}  // namespace

TEST_CASE("search: the best trial is found, and several threads run the same trials") {
  const SearchResult one = search_hyperparameters(small_space(), rate_of, {.n_trials = 30});
  REQUIRE(one.trials.size() == 30);
  CHECK_FALSE(one.interrupted);
  for (const FinishedTrial& trial : one.trials) CHECK(*one.best()->value <= *trial.value);
  const SearchResult largest = search_hyperparameters(
      small_space(), rate_of, {.n_trials = 30, .direction = SearchDirection::maximize});
  for (const FinishedTrial& trial : one.trials) CHECK(*largest.best()->value >= *trial.value);

  std::atomic<int> at_once = 0, most = 0;
  const auto slow = [&](Trial& trial) {
    most = std::max<int>(most, ++at_once);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    --at_once;
    return rate_of(trial);
  };
  const SearchResult four =
      search_hyperparameters(small_space(), slow, {.n_trials = 30, .n_jobs = 4});
  CHECK(most > 1);
  REQUIRE(four.trials.size() == 30);
  for (std::size_t at = 0; at < 30; ++at) {
    CHECK(four.trials[at].number == static_cast<std::int64_t>(at));
    CHECK(four.trials[at].parameters == one.trials[at].parameters);
  }
}

TEST_CASE("search: a grid runs each combination once") {
  SearchSpace space;
  space.choice("a", {1, 2, 3}).choice("b", {10, 20});
  std::set<std::int64_t> sums;
  const auto sum = [&](Trial& trial) -> std::optional<double> {
    sums.insert(trial.integer("a") + trial.integer("b"));
    return static_cast<double>(trial.integer("a"));
  };
  const SearchResult result = search_hyperparameters(space, sum, {.method = SearchMethod::grid});
  CHECK(sums == std::set<std::int64_t>{11, 12, 13, 21, 22, 23});
  CHECK(result.best()->number == 0);  // the first of several equal trials
}

TEST_CASE("search: an interrupted search continues and runs no finished trial again") {
  const TemporaryDirectory folder;
  std::vector<std::int64_t> ran;
  bool interrupted = false;
  SearchOptions options{.folder = folder.path(), .n_trials = 6};
  options.is_interrupted = [&] { return interrupted; };
  const auto objective = [&](Trial& trial) -> std::optional<double> {
    ran.push_back(trial.number());
    interrupted = trial.number() == 3;
    if (trial.should_stop()) return std::nullopt;
    return trial.value("rate");
  };
  const SearchResult first = search_hyperparameters(small_space(), objective, options);
  CHECK(first.interrupted);
  CHECK(first.trials.size() == 3);
  CHECK(ran == std::vector<std::int64_t>{0, 1, 2, 3});

  ran.clear();
  interrupted = false;
  options.is_interrupted = nullptr;
  const auto whole = [&](Trial& trial) {
    ran.push_back(trial.number());
    return rate_of(trial);
  };
  const SearchResult second = search_hyperparameters(small_space(), whole, options);
  CHECK(ran == std::vector<std::int64_t>{3, 4, 5});
  const SearchResult at_once = search_hyperparameters(small_space(), rate_of, {.n_trials = 6});
  REQUIRE(second.trials.size() == 6);
  for (std::size_t at = 0; at < 6; ++at) {
    CHECK(second.trials[at].parameters == at_once.trials[at].parameters);
    CHECK(second.trials[at].value == at_once.trials[at].value);
  }
  // A later search may add trials.
  ran.clear();
  options.n_trials = 8;
  search_hyperparameters(small_space(), whole, options);
  CHECK(ran == std::vector<std::int64_t>{6, 7});
  CHECK(lines_of(folder.path() / "journal.jsonl").size() == 9);
}

TEST_CASE("search: a half-written last line is removed and logged, its trial runs again") {
  const TemporaryDirectory folder;
  const auto journal = folder.path() / "journal.jsonl";
  const SearchOptions options{.folder = folder.path(), .n_trials = 3};
  search_hyperparameters(small_space(), rate_of, options);
  const std::string whole = read_file(journal);

  for (const std::size_t missing : {std::size_t{2}, std::size_t{30}}) {
    write_file_atomically(journal, whole.substr(0, whole.size() - missing));
    LoggedLines logged;
    int ran = 0;
    const auto count = [&](Trial& trial) {
      ++ran;
      return rate_of(trial);
    };
    CHECK(search_hyperparameters(small_space(), count, options).trials.size() == 3);
    CHECK(ran == 1);
    CHECK(logged.text.find("journal.jsonl:4: the last line is half-written") != std::string::npos);
    CHECK(lines_of(journal).size() == 4);
  }
  // If only the end of the line is missing, the trial has ended.
  write_file_atomically(journal, whole.substr(0, whole.size() - 1));
  LoggedLines logged;
  const auto never = [](Trial&) -> std::optional<double> {
    FAIL("a finished trial ran again");
    return 0;
  };
  CHECK(search_hyperparameters(small_space(), never, options).trials.size() == 3);
  CHECK(logged.text.empty());
  CHECK(read_file(journal) == whole);
  // Only the description is present, and it is half-written.
  write_file_atomically(journal, "{\"search\": {\"spa");
  CHECK(search_hyperparameters(small_space(), rate_of, options).trials.size() == 3);
}

TEST_CASE("search: a journal that is damaged, in use or of another search is an error") {
  const TemporaryDirectory folder;
  const auto journal = folder.path() / "journal.jsonl";
  SearchOptions options{.folder = folder.path(), .n_trials = 2};
  const auto again = [&] {
    return code_of([&] { search_hyperparameters(small_space(), rate_of, options); });
  };
  CHECK(again() == "none");
  const std::string whole = read_file(journal);
  for (const std::string& line : {std::string("{\"trial\": 5}\n"), std::string("garbage\n"),
                                  lines_of(journal)[1] + "\n", lines_of(journal)[0] + "\n"}) {
    append(journal, line);
    CHECK(again() == "search.journal");
    write_file_atomically(journal, whole);
  }
  for (const std::string report : {"[1e300, 0.5]", "[1.5, 0.5]", "[1, \"much\"]", "1"}) {
    CAPTURE(report);
    std::string changed = whole;
    const std::string none = "\"reports\":[]";
    REQUIRE(changed.find(none) != std::string::npos);
    changed.replace(changed.find(none), none.size(), str("\"reports\":[", report, "]"));
    write_file_atomically(journal, changed);
    CHECK(again() == "search.journal");
  }
  const std::size_t value = whole.rfind("\"value\":"), end = whole.find(',', value) + 1;
  REQUIRE(value != std::string::npos);
  for (const std::string other : {"", "\"value\":\"nan\",", "\"value\":null,"}) {
    CAPTURE(other);
    write_file_atomically(journal, whole.substr(0, value) + other + whole.substr(end));
    CHECK(again() == "search.journal");
  }
  const std::string complete = "\"complete\"";
  std::string failed = whole;
  failed.replace(failed.rfind(complete), complete.size(), "\"failed\"");
  write_file_atomically(journal, failed);
  CHECK(again() == "search.journal");
  write_file_atomically(journal, whole);
  options.seed = 43;
  CHECK(again() == "search.other-search");
  options.seed = 42;
  options.setting = "other arguments";
  CHECK(again() == "search.other-search");
  options.setting = "";
  CHECK(code_of([&] {
          search_hyperparameters(SearchSpace().uniform("rate", 0, 1), rate_of, options);
        }) == "search.other-search");
  CHECK(again() == "none");
  options.n_trials = 3;
  std::string inner;
  search_hyperparameters(
      small_space(),
      [&](Trial& trial) {
        inner = again();
        return rate_of(trial);
      },
      options);
  CHECK(inner == "search.in-use");
}

TEST_CASE("search: a line that cannot be written completely leaves no part of it") {
  const TemporaryDirectory folder;
  const TrialJson description = {{"metric", "loss"}};
  {
    SearchJournal journal(folder.path(), description);
    const auto size = std::filesystem::file_size(folder.path() / "journal.jsonl");
    rlimit before{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit almost_full{.rlim_cur = size + 10, .rlim_max = before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &almost_full);
    const std::string code = code_of([&] { journal.append({.number = 0}); });
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    CHECK(code == "io.write");
    CHECK(std::filesystem::file_size(folder.path() / "journal.jsonl") == size);
    journal.append({.number = 1, .value = 0.5});
  }
  const SearchJournal again(folder.path(), description);
  REQUIRE(again.entries().size() == 1);
  CHECK(again.entries()[0].trial.number == 1);
}

TEST_CASE("search: failed trials are recorded, and other exceptions end the search") {
  const auto objective = [](Trial& trial) -> std::optional<double> {
    if (trial.number() == 0) return trial.fail("the process ended");
    if (trial.number() == 1) return kNaN;
    if (trial.number() == 2) return std::nullopt;
    if (trial.number() == 3) throw MemoryError("test.memory", {.what = "no memory"});
    if (trial.number() == 4) return std::numeric_limits<double>::infinity();
    return 1.0;
  };
  const TemporaryDirectory folder;
  const SearchOptions options{.folder = folder.path(), .n_trials = 6};
  const SearchResult result = search_hyperparameters(small_space(), objective, options);
  const SearchResult read = search_hyperparameters(small_space(), objective, options);
  for (const SearchResult* each : {&result, &read}) {
    REQUIRE(each->trials.size() == 6);
    CHECK(each->trials[0].reason == "the process ended");
    CHECK(each->trials[1].reason == "the objective is NaN");
    CHECK(each->trials[2].reason == "the objective returned no value");
    CHECK(each->trials[3].reason == "no memory");
    CHECK(each->trials[3].state == TrialState::failed);
    CHECK(*each->trials[4].value == std::numeric_limits<double>::infinity());
    CHECK(each->best()->number == 5);
  }
  for (const std::int64_t jobs : {1, 3}) {
    std::atomic<int> stopped = 0;
    const auto throws = [&](Trial& trial) -> std::optional<double> {
      if (trial.number() == 2) throw std::runtime_error("stop");
      for (int wait = 0; trial.number() > 2 && !trial.should_stop() && wait < 2000; ++wait)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      stopped += trial.should_stop();
      return 1.0;
    };
    CHECK_THROWS_WITH(
        search_hyperparameters(small_space(), throws, {.n_trials = 9, .n_jobs = jobs}), "stop");
    CHECK(stopped <= jobs);
  }
}

TEST_CASE("search: a trial worse than the median is stopped") {
  SearchSpace space;
  space.integer("a", 0, 9);
  // The trial's number is its loss, so later trials are worse.
  const auto objective = [](Trial& trial) -> std::optional<double> {
    for (int step = 10; step <= 30; step += 10) {
      trial.report(step, static_cast<double>(trial.number()) + 1.0 / step);
      if (trial.should_stop()) return std::nullopt;
    }
    return static_cast<double>(trial.number());
  };
  const auto states = [&](const SearchOptions& options) {
    std::string text;
    for (const FinishedTrial& trial : search_hyperparameters(space, objective, options).trials)
      text += name_of(trial.state)[0];
    return text;
  };
  CHECK(states({.n_trials = 8}) == "cccccppp");
  CHECK(states({.n_trials = 8, .pruner = std::nullopt}) == "cccccccc");
  CHECK(states({.n_trials = 8, .pruner = MedianPruner{.n_startup_trials = 1}}) == "cppppppp");
  CHECK(states({.n_trials = 8, .direction = SearchDirection::maximize}) == "cccccccc");
  const SearchResult result = search_hyperparameters(
      space, objective, {.n_trials = 8, .pruner = MedianPruner{.n_warmup_steps = 15}});
  CHECK(result.trials[7].reports.rbegin()->first == 20);
  const TemporaryDirectory folder;
  search_hyperparameters(space, objective, {.folder = folder.path(), .n_trials = 8});
  // Reports from the journal also count for pruning.
  const SearchResult more =
      search_hyperparameters(space, objective, {.folder = folder.path(), .n_trials = 9});
  CHECK(more.trials[8].state == TrialState::pruned);
}

TEST_CASE("search: the pruner decides as Optuna's MedianPruner does") {
  const TrialReports good = {{10, 1}, {20, 1}}, bad = {{10, 3}, {20, 3}}, strange = {{20, kNaN}};
  const MedianPruner pruner{.n_startup_trials = 0};
  const auto prunes = [&](const MedianPruner& by, std::vector<const TrialReports*> complete,
                          const TrialReports& reports) {
    return is_worse_than_median(by, SearchDirection::minimize, complete, reports);
  };
  CHECK(prunes(pruner, {&good}, {{10, 2}}));
  CHECK_FALSE(prunes(pruner, {&good}, {{10, 1}}));
  CHECK_FALSE(prunes(pruner, {}, {{10, 2}}));
  CHECK_FALSE(prunes(pruner, {&good}, {{15, 2}}));        // no other trial has reported at step 15
  CHECK_FALSE(prunes(pruner, {&good, &bad}, {{10, 2}}));  // equal to the median of two
  CHECK(prunes(pruner, {&good, &bad}, {{10, 2.1}}));
  CHECK_FALSE(prunes(pruner, {&good}, {{10, 0.5}, {20, 9}}));  // the best report counts
  CHECK(prunes(pruner, {&good}, {{10, kNaN}}));
  CHECK(prunes(pruner, {&good, &strange}, {{20, 2}}));  // NaN is left out of the median
  CHECK_FALSE(prunes({.n_startup_trials = 2}, {&good}, {{10, 2}}));
  CHECK_FALSE(prunes({.n_startup_trials = 0, .n_warmup_steps = 11}, {&good}, {{10, 2}}));
  CHECK_FALSE(prunes({.n_startup_trials = 0, .n_min_trials = 2}, {&good}, {{10, 2}}));
  CHECK_FALSE(prunes({.n_startup_trials = 0, .interval_steps = 100}, {&good}, {{10, 2}, {20, 2}}));
}

TEST_CASE("search: parameters are read by name and type") {
  SearchSpace space;
  space.uniform("number", 0, 1)
      .integer("integer", 1, 2)
      .choice("text", {std::string("adam")})
      .choice("flag", {true})
      .choice("words", {std::string("16")});
  const auto objective = [](Trial& trial) -> std::optional<double> {
    CHECK(trial.value("integer") == static_cast<double>(trial.integer("integer")));
    CHECK(trial.text("text") == "adam");
    CHECK(trial.flag("flag"));
    CHECK(trial.integer("words") == 16);
    CHECK(code_of([&] { trial.value("numbre"); }) == "search.parameter");
    CHECK(code_of([&] { trial.integer("number"); }) == "search.parameter");
    CHECK(code_of([&] { trial.value("text"); }) == "search.parameter");
    CHECK(code_of([&] { trial.flag("text"); }) == "search.parameter");
    CHECK(code_of([&] { trial.text("flag"); }) == "search.parameter");
    CHECK(code_of([&] { trial.report(-1, 0); }) == "search.step");
    return trial.value("number");
  };
  CHECK(search_hyperparameters(space, objective, {.n_trials = 1}).trials.size() == 1);
}

TEST_CASE("search: bad options are errors") {
  const auto code = [](const SearchOptions& options) {
    return code_of([&] { search_hyperparameters(small_space(), rate_of, options); });
  };
  CHECK(code({.n_trials = 0}) == "search.options");
  CHECK(code({.n_trials = 10'000'000}) == "search.options");
  CHECK(code({.n_jobs = 0}) == "search.options");
  CHECK(code({.pruner = MedianPruner{.interval_steps = 0}}) == "search.options");
  CHECK(code({.pruner = MedianPruner{.n_startup_trials = -1}}) == "search.options");
  CHECK(code({.method = SearchMethod::grid}) == "search.space");
  CHECK(code_of([] { search_hyperparameters(SearchSpace(), rate_of); }) == "search.space");
}

TEST_CASE("search: the table and the JSON list the trials") {
  SearchResult result{.n_trials = 4};
  const TrialParameters parameters = {{"rate", 0.5}, {"size", std::int64_t{8}}};
  result.trials = {
      {.number = 0,
       .parameters = parameters,
       .value = 0.75,
       .reports = {{10, 0.75}},
       .seconds = 1.5},
      {.number = 1, .state = TrialState::failed, .parameters = parameters, .reason = "exit code 5"},
      {.number = 2,
       .state = TrialState::pruned,
       .parameters = parameters,
       .reports = {{5, kNaN}},
       .seconds = 0.25},
      {.number = 3,
       .parameters = parameters,
       .value = 0.25,
       .reports = {{10, 0.25}},
       .seconds = 12}};
  CHECK(to_text(result, "loss") ==
        "trial  state     loss  step  seconds  rate  size\n"
        "-----  --------  ----  ----  -------  ----  ----\n"
        "    3  complete  0.25    10     12.0   0.5     8\n"
        "    0  complete  0.75    10      1.5   0.5     8\n"
        "    2  pruned             5      0.2   0.5     8\n"
        "    1  failed                    0.0   0.5     8\n"
        "trial 1 failed: exit code 5\n");
  const auto json = nlohmann::json::parse(to_json(result));
  CHECK(json["best"]["trial"] == 3);
  CHECK(json["trials"][2]["reports"] == nlohmann::json::parse("[[5, \"nan\"]]"));
  CHECK(json["trials"][0]["parameters"] == nlohmann::json{{"rate", 0.5}, {"size", 8}});
}

}  // namespace search_search_test
