#include "test_ranks.h"

#include <signal.h>

#include "child.h"

namespace hasten::cli {
namespace {

using Json = nlohmann::ordered_json;

// Rank 0 itself reports the ranks that have not arrived. It gets this many seconds beyond the
// limit.
constexpr double kRankZeroSlack = 10;
constexpr double kEndTimeout = 30;  // seconds for ranks that were asked to end

class RankMonitor {
 public:
  RankMonitor(const RankCheckOptions& run, TestReport& report)
      : run_(run), report_(report), launcher_(run.command, {.read_descriptor = kReportFile}) {}

  void run() {
    while (const auto line = launcher_.line(deadline())) handle_message(Json::parse(line->text));
    if (!launcher_.is_at_end()) return give_up();
    const bool main_rank_is_elsewhere =
        !main_rank_has_reported_ && (ended_ || run_.main_rank_is_remote);
    if (main_rank_is_elsewhere) report_.show_only_failures();
    const int code = launcher_.wait(in(kEndTimeout)).value_or(-1);
    if (!ended_ || (code != 0 && !stopped_)) return fail_with(code);
    if (main_rank_is_elsewhere && failures_ > 0)
      fail("ranks", str(failures_,
                        " checks of these ranks failed; see the output on the machine of the "
                        "main process"));
  }

 private:
  static Clock::time_point in(double seconds) {
    return Clock::now() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }

  // With several machines, only the launcher's own limits apply until the first message arrives.
  Clock::time_point deadline() const {
    const bool waits = run_.several_machines && !main_rank_has_reported_;
    return waits ? Clock::time_point::max() : in(run_.limit + kRankZeroSlack);
  }

  void handle_message(const Json& message) {
    if (message.contains("begin")) {
      main_rank_has_reported_ = true;
      current_check_ = message.at("begin");
    } else if (message.contains("end")) {
      ended_ = true;
      failures_ = message.at("end");
      stopped_ = message.at("stopped");
    } else {
      report_.add(message.get<TestResult>());
      current_check_ = "ranks";
    }
  }

  void fail(const std::string& check, const std::string& text) {
    report_.add({.check = check, .result = "FAIL", .text = text});
  }

  // Called if no message from rank 0 arrives in time.
  void give_up() {
    fail(current_check_,
         str("no message from rank 0 for ", fixed(run_.limit + kRankZeroSlack, 0), " s"));
    launcher_.send(SIGTERM);
    launcher_.wait(in(kEndTimeout));
  }

  void fail_with(int code) {
    fail(current_check_,
         code == 0 ? "the ranks ended without a message"
                   : str("hasten launch ended with code ", code, "; its output is above"));
  }

  const RankCheckOptions& run_;
  TestReport& report_;
  Child launcher_;
  std::string current_check_ = "start";
  std::int64_t failures_ = 0;
  bool main_rank_has_reported_ = false, ended_ = false, stopped_ = false;
};

}  // namespace

void check_ranks(const RankCheckOptions& run, TestReport& report) {
  RankMonitor(run, report).run();
}

}  // namespace hasten::cli
