#include "attach/report_writer.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "base/environment_variable.h"
#include "base/parse_number.h"
#include "commands/observe_options.h"
#include "hasten/base/error.h"

namespace hasten::anatomy {

ReportWriter::ReportWriter(const char* what)
    : what_(what), output_(environment_variable(kObserveVariable)) {}

void ReportWriter::on_step() {
  if (!finished()) return;
  write();
  _exit(0);  // only these steps were requested
}

void ReportWriter::write() {
  if (std::exchange(written_, true)) return;
  std::fflush(nullptr);
  collect();
  if (output_ == "json") {
    std::fputs(json().c_str(), stdout);
  } else if (output_ == "text") {
    std::fputs(("\n" + text()).c_str(), stdout);
  } else {
    write_file(output_);
    std::fprintf(stderr, "hasten: wrote the %s to %s\n", what_, output_.c_str());
  }
  std::fflush(nullptr);
}

std::int64_t ReportWriter::steps() {
  const std::string text = environment_variable(kObserveStepsVariable);
  const auto number = parse_number<std::int64_t>(text);
  if (!number || *number < 1) {
    throw ConfigError("config.bad-value",
                      {.what = kObserveStepsVariable,
                       .got = "'" + text + "'",
                       .expected = "a whole number of at least 1",
                       .hint = "hasten anatomy sets it; give the number with --steps"});
  }
  return *number;
}

}  // namespace hasten::anatomy
