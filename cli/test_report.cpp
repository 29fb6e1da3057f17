#include "test_report.h"

#include <cstdio>

#include "base/utf8.h"

namespace hasten::cli {
namespace {

constexpr std::size_t kTimeColumn = 90;

}  // namespace

void TestReport::print_line(const std::string& line) const {
  std::FILE* const to = json_ ? stderr : stdout;
  std::fprintf(to, "%s\n", line.c_str());
  std::fflush(to);
}

void TestReport::add(const TestResult& result) {
  results_.push_back(result);
  failed_ += result.failed();
  skipped_ += result.skipped();
  if (only_failures_ && !result.failed()) return;
  std::string line = result.result + std::string(5 - result.result.size(), ' ') + result.check;
  line += ": " + result.text;
  const std::size_t width = code_point_count(line);
  line.append(width < kTimeColumn ? kTimeColumn - width : 1, ' ');
  print_line(line + fixed(result.seconds, 2) + " s");
}

std::string TestReport::summary(const std::string& ready_for) const {
  const std::size_t all = results_.size() - skipped_;
  const std::string skipped = skipped_ > 0 ? str(", ", skipped_, " skipped") : "";
  const std::string where = only_failures_ ? " of this machine" : "";
  if (failed_ > 0)
    return str(failed_, " of ", all, " checks", where, " failed", skipped, ": not ready for ",
               ready_for, ".");
  if (only_failures_)
    return str("All ", all, " checks of this machine passed", skipped,
               "; those of the ranks are reported on the machine of the main process.");
  return str("All ", all, " checks passed", skipped, ": ready for ", ready_for, ".");
}

int TestReport::end(const std::string& ready_for) const {
  print_line(summary(ready_for));
  if (json_) {
    const nlohmann::ordered_json document = {
        {"passed", failed_ == 0}, {"failed", failed_}, {"skipped", skipped_}, {"checks", results_}};
    const std::string text =
        document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    std::printf("%s\n", text.c_str());
  }
  return failed_ == 0 ? 0 : 1;
}

}  // namespace hasten::cli
