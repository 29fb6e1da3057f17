#include "listen.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "hasten/base/error.h"

namespace hasten::cli {

void listen(const ListenOptions& options, bool dry) {
  setenv(kListenVariable, options.output.c_str(), 1);
  setenv(kListenStepsVariable, std::to_string(options.steps).c_str(), 1);
  dry ? setenv(kDryRunVariable, options.device.c_str(), 1) : unsetenv(kDryRunVariable);
  std::vector<char*> words;
  for (const std::string& word : options.program) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  std::fflush(nullptr);
  execvp(words[0], words.data());
  throw IoError("io.cannot-run", {.what = options.program[0] + ": " + std::strerror(errno)});
}

}  // namespace hasten::cli
