#include "test_ranks.h"

#include <signal.h>

#include "child.h"

namespace hasten::cli {
namespace {

using Json = nlohmann::ordered_json;

// Seconds beyond the limit in which rank 0 itself reports the ranks that have not arrived.
constexpr double kForRankZero = 10;
constexpr double kToEnd = 30;  // seconds for ranks that are asked to end

class Ranks {
 public:
  Ranks(const RanksRun& run, TestReport& report)
      : run_(run), report_(report), launcher_(run.words, {.reads = kReportFile}) {}

  void run() {
    while (const auto line = launcher_.line(deadline())) hear(Json::parse(line->text));
    if (!launcher_.over()) return give_up();
    const bool elsewhere = !has_main_ && (ended_ || run_.main_is_elsewhere);
    if (elsewhere) report_.show_failures_alone();
    const int code = launcher_.wait(in(kToEnd)).value_or(-1);
    if (!ended_ || (code != 0 && !stopped_)) return fail_with(code);
    if (elsewhere && failures_ > 0)
      fail("ranks", str(failures_,
                        " of their checks failed; see the output on the machine of the "
                        "main process"));
  }

 private:
  static Clock::time_point in(double seconds) {
    return Clock::now() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }

  // With several machines only the launcher's own limits apply until the first message comes.
  Clock::time_point deadline() const {
    const bool waits = run_.several_machines && !has_main_;
    return waits ? Clock::time_point::max() : in(run_.limit + kForRankZero);
  }

  void hear(const Json& message) {
    if (message.contains("begin")) {
      has_main_ = true;
      now_ = message.at("begin");
    } else if (message.contains("end")) {
      ended_ = true;
      failures_ = message.at("end");
      stopped_ = message.at("stopped");
    } else {
      report_.add(message.get<TestResult>());
      now_ = "ranks";
    }
  }

  void fail(const std::string& check, const std::string& text) {
    report_.add({.check = check, .result = "FAIL", .text = text});
  }

  // Called if no message of rank 0 comes in time.
  void give_up() {
    fail(now_, str("no message from rank 0 for ", fixed(run_.limit + kForRankZero, 0), " s"));
    launcher_.send(SIGTERM);
    launcher_.wait(in(kToEnd));
  }

  void fail_with(int code) {
    fail(now_, code == 0 ? "the ranks ended without a message"
                         : str("hasten launch ended with code ", code, "; its output is above"));
  }

  const RanksRun& run_;
  TestReport& report_;
  Child launcher_;
  std::string now_ = "start";
  std::int64_t failures_ = 0;
  bool has_main_ = false, ended_ = false, stopped_ = false;
};

}  // namespace

void check_ranks(const RanksRun& run, TestReport& report) { Ranks(run, report).run(); }

}  // namespace hasten::cli
