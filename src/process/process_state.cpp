#include "process/process_state.h"

#include <fstream>
#include <string>

#include "hasten/base/text.h"

namespace hasten {

char process_state(pid_t process) {
  std::ifstream file(str("/proc/", process, "/stat"));
  std::string line;
  if (!std::getline(file, line)) return 0;
  const std::size_t name_ends = line.rfind(')');  // a name may hold anything
  return name_ends + 2 < line.size() ? line[name_ends + 2] : '?';
}

}  // namespace hasten
