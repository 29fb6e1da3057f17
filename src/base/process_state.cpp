#include "base/process_state.h"

#include <fcntl.h>
#include <unistd.h>

#include <sstream>
#include <string>

#include "base/descriptor.h"
#include "base/first_line.h"
#include "hasten/base/text.h"

namespace hasten {

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

std::string proc_file_content(const std::string& path) {
  std::string content;
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char buffer[8192];
  ssize_t got = 0;
  while ((got = read(file.get(), buffer, sizeof buffer)) > 0)
    content.append(buffer, static_cast<std::size_t>(got));
  return content;
}

// The text is "PID (NAME) STATE PARENT ...". The name may contain any characters.
std::optional<ProcessStatus> process_status(const std::string& number) {
  const std::string text = proc_file_content("/proc/" + number + "/stat");
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
