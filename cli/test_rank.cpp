// One of the ranks that `hasten test` starts. It makes the checks in step with the other ranks.
//
// Results go through the store that hasten launch serves, not through the group, because the group
// is what the checks test. If a rank does not finish a check or cannot reach the store, rank 0
// names it and the job ends, because that rank may never leave the call it is in.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <thread>

#include "base/json_line.h"
#include "base/parse_number.h"
#include "base/seconds.h"
#include "hasten/base/error.h"
#include "launch/job.h"
#include "machine/token.h"
#include "test_checks.h"
#include "torch_commands.h"

namespace hasten::cli {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kLateRankSlack{3000};  // beyond the limit, as ranks are not quite in step
constexpr std::size_t kMaxTextBytes = 2000;   // bytes; lines of up to 4096 stay whole in a pipe

std::string required_variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value != nullptr) return value;
  throw ConfigError("config.missing", {.what = str(name, " is not set"),
                                       .hint = "run hasten test, which starts its ranks itself"});
}

rendezvous::StoreClient store_of_job(milliseconds limit) {
  const Endpoint at = parse_endpoint(required_variable(kStoreVariable), 0);
  return rendezvous::StoreClient(at, required_variable(kTokenVariable), limit);
}

void report(const Json& message) {
  const std::string line = json_line(message) + "\n";
  if (write(kReportFile, line.data(), line.size()) < 0)
    throw IoError("io.write",
                  {.what = "cannot write the report of hasten test", .got = std::strerror(errno)});
}

class RankRunner {
 public:
  explicit RankRunner(milliseconds limit)
      : store_(store_of_job(limit)),
        rank_{.worker = this_worker(), .limit = limit, .store = store_} {
    const bool cpu =
        config::environment_flag(config::whole_environment(), "ACCELERATE_USE_CPU").value_or(false);
    rank_.process = ProcessState::of(rank_.worker, cpu);
    rank_.keys = str("hasten test ", rank_.worker.attempt, "/");
  }

  // Returns the exit code.
  int run() {
    for (const Check& check : checks_of_ranks()) {
      if (is_aborted_) break;
      run_check(check);
    }
    if (rank_.worker.local_rank == 0) report({{"end", failures_}, {"stopped", is_aborted_}});
    if (is_aborted_) abort_checks();
    return 0;
  }

 private:
  // Ends with a failure, so that the launcher ends the other ranks. It exits at once, because a
  // thread may still be in the unfinished check and use objects that an orderly exit would destroy.
  [[noreturn]] void abort_checks() const {
    std::fputs("hasten test: the remaining checks of the ranks are skipped\n", stderr);
    _exit(1);
  }

  bool is_main() const { return rank_.process.is_main_process(); }

  void run_check(const Check& check) {
    const auto began = Clock::now();
    if (is_main()) report({{"begin", check.name}});
    const std::string key = str(rank_.keys, check.name, "/");
    store_.set(str(key, rank_.worker.rank), run_own_part(check).dump());
    if (is_main()) {
      TestResult result = combine_results(check, began);
      result.seconds = seconds_since(began);
      result.text.resize(std::min(result.text.size(), kMaxTextBytes));
      report(result);
      failures_ += result.failed();
      store_.set(key + "next", Json{{"failures", failures_}, {"stop", is_aborted_}}.dump());
    } else {
      const auto next =
          Json::parse(store_.get({key + "next"}, 2 * (rank_.limit + kLateRankSlack)).front());
      failures_ = next.at("failures");
      is_aborted_ = next.at("stop");
    }
  }

  // Returns {"facts"}, {"fail"} or {"skip"} with the reason, or {"hangs"}. The check runs in a
  // thread. If it does not end in time, the thread is left running.
  Json run_own_part(const Check& check) {
    std::packaged_task<Json()> task([this, &check]() -> Json {
      try {
        return {{"facts", check.run(rank_)}};
      } catch (const CheckSkipped& why) {
        return {{"skip", why.what()}};
      } catch (const c10::Error& error) {
        return {{"fail", error.what_without_backtrace()}};
      } catch (const std::exception& error) {
        return {{"fail", error.what()}};
      }
    });
    auto result_future = task.get_future();
    std::thread thread(std::move(task));
    if (result_future.wait_for(rank_.limit) == std::future_status::ready) {
      thread.join();
      return result_future.get();
    }
    thread.detach();
    return {{"hangs", true}};
  }

  // Returns what all ranks have found; `late` receives the ranks that have not answered in time.
  std::vector<Json> collect_results(const Check& check, Clock::time_point began,
                                    std::vector<std::string>& late) {
    std::vector<Json> results;
    for (std::int64_t rank = 0; rank < rank_.worker.world_size; ++rank) {
      const auto left = std::chrono::duration_cast<milliseconds>(began + rank_.limit +
                                                                 kLateRankSlack - Clock::now());
      const std::string key = str(rank_.keys, check.name, "/", rank);
      try {
        const auto values = store_.get({key}, std::max(left, milliseconds(0)));
        results.push_back(Json::parse(values.front()));
      } catch (const IoError& error) {
        if (error.code() != "rendezvous.time") throw;
        results.push_back({{"hangs", true}});
      }
      if (results.back().contains("hangs")) late.push_back(str(rank));
    }
    return results;
  }

  TestResult combine_results(const Check& check, Clock::time_point began) {
    TestResult result{.check = check.name, .result = "ok"};
    std::vector<std::string> late;
    const std::vector<Json> results = collect_results(check, began, late);
    if (!late.empty()) {
      is_aborted_ = true;
      result.result = "FAIL";
      result.text = str("got no answer from rank", late.size() > 1 ? "s " : " ", join(late, ", "),
                        ", expected one within ",
                        significant(static_cast<double>(rank_.limit.count()) / 1e3, 6),
                        " s; the remaining checks of the ranks are skipped");
      return result;
    }
    std::vector<Json> facts;
    for (std::size_t rank = 0; rank < results.size(); ++rank) {
      if (results[rank].contains("fail")) {
        result.result = "FAIL";
        result.text = str("rank ", rank, ": ", results[rank].at("fail").get<std::string>());
        return result;
      }
      if (results[rank].contains("skip")) {
        result.result = "skip";
        result.text = results[rank].at("skip");
      } else {
        facts.push_back(results[rank].at("facts"));
      }
    }
    if (result.skipped()) return result;
    try {
      CheckOutcome outcome = check.evaluate(rank_, facts);
      result.text = std::move(outcome.text);
      result.numbers = std::move(outcome.numbers);
    } catch (const std::exception& error) {
      result.result = "FAIL";
      result.text = error.what();
    }
    return result;
  }

  rendezvous::StoreClient store_;
  RankContext rank_;
  std::int64_t failures_ = 0;
  bool is_aborted_ = false;
};

}  // namespace

int test_rank(int argc, char** argv) {
  const std::string_view limit = argc > 2 ? argv[2] : "60";
  const auto seconds = parse_number<double>(limit);
  if (!seconds) {
    throw ConfigError("config.bad-value", {.what = "the limit of a rank of hasten test",
                                           .got = "'" + std::string(limit) + "'",
                                           .expected = "a number of seconds"});
  }
  fcntl(kReportFile, F_SETFD, FD_CLOEXEC);
  return RankRunner(milliseconds(static_cast<std::int64_t>(*seconds * 1e3))).run();
}

}  // namespace hasten::cli
