#include "base/process_state.h"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "base/first_line.h"
#include "hasten/base/text.h"

namespace hasten {

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

// The text is "PID (NAME) STATE PARENT ...". The name may contain any characters.
std::optional<ProcessStatus> process_status(const std::string& number) {
  std::ifstream file("/proc/" + number + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_ends = text.rfind(')');
  if (name_ends == text.npos) return std::nullopt;
  std::istringstream fields(text.substr(name_ends + 1));
  ProcessStatus status;
  std::string ignored;
  fields >> status.state >> status.parent;  // the third and the fourth field
  for (int field = 5; field < 20; ++field) fields >> ignored;
  fields >> status.threads >> ignored >> status.started;
  return fields ? std::optional(status) : std::nullopt;
}

std::string boot_id() { return first_line("/proc/sys/kernel/random/boot_id"); }

std::string pid_namespace_id() {
  char container[64] = "";
  if (readlink("/proc/self/ns/pid", container, sizeof container - 1) < 0) container[0] = '\0';
  return str(boot_id(), " ", container);
}

ProcessIdentity ProcessIdentity::own() {
  const auto status = process_status(str(getpid()));
  return {.number = getpid(), .started = status ? status->started : 0};
}

char process_state(const ProcessIdentity& process) {
  const auto status = process_status(str(process.number));
  if (!status || status->started != process.started) return 0;
  // The main thread remains a zombie until the other threads have ended too.
  if (status->state == 'Z' && status->threads > 1) return 'S';
  return status->state;
}

}  // namespace hasten
