#include "process/process_state.h"

#include <unistd.h>

#include <fstream>
#include <string>

#include "hasten/base/text.h"

namespace hasten {

std::string processes_seen_here() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  char container[64] = "";
  if (readlink("/proc/self/ns/pid", container, sizeof container - 1) < 0) container[0] = '\0';
  return str(boot, " ", container);
}

char process_state(pid_t process) {
  std::ifstream file(str("/proc/", process, "/stat"));
  std::string line;
  if (!std::getline(file, line)) return 0;
  const std::size_t name_ends = line.rfind(')');  // a name may hold anything
  return name_ends + 2 < line.size() ? line[name_ends + 2] : '?';
}

}  // namespace hasten
