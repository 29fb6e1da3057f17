#include "process/watch/process_state.h"

#include <unistd.h>

#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "hasten/base/text.h"

namespace hasten {
namespace {

struct Status {
  char state = 0;
  std::int64_t threads = 0;
  std::uint64_t started = 0;
};

// Reads /proc/PID/stat. The name in it may contain any characters; one letter and numbers follow
// it.
std::optional<Status> status_of(std::int64_t process) {
  std::ifstream file(str("/proc/", process, "/stat"));
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  const std::size_t name_ends = line.rfind(')');
  if (name_ends == line.npos) return std::nullopt;
  std::istringstream fields(line.substr(name_ends + 1));
  Status status;
  std::string ignored;
  fields >> status.state;  // the third field
  for (int field = 4; field < 20; ++field) fields >> ignored;
  fields >> status.threads >> ignored >> status.started;
  return fields ? std::optional(status) : std::nullopt;
}

}  // namespace

std::string pid_namespace_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  char container[64] = "";
  if (readlink("/proc/self/ns/pid", container, sizeof container - 1) < 0) container[0] = '\0';
  return str(boot, " ", container);
}

ProcessIdentity ProcessIdentity::own() {
  const auto status = status_of(getpid());
  return {.number = getpid(), .started = status ? status->started : 0};
}

char process_state(const ProcessIdentity& process) {
  const auto status = status_of(process.number);
  if (!status || status->started != process.started) return 0;
  // The main thread remains a zombie until the other threads have ended too.
  if (status->state == 'Z' && status->threads > 1) return 'S';
  return status->state;
}

}  // namespace hasten
