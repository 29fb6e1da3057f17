#include "exec_torch.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "cannot_run.h"
#include "hasten/base/error.h"
#include "launch/thread_waiting.h"
#include "own_program.h"

namespace hasten::cli {

namespace fs = std::filesystem;

std::string torch_program() {
  const fs::path here = fs::path(own_program()).parent_path();
  const fs::path in_build_tree = here / "hasten-torch";
  const fs::path installed = (here / "../libexec/hasten/hasten-torch").lexically_normal();
  if (fs::exists(in_build_tree)) return in_build_tree.string();
  if (fs::exists(installed)) return installed.string();
  throw IoError("io.not-found", {.what = "hasten-torch is missing",
                                 .expected = in_build_tree.string() + " or " + installed.string(),
                                 .hint = "build or install all of hasten"});
}

void exec_torch_program(char** argv) {
  const std::string program = torch_program();
  // Buffered output would otherwise appear after the new program's output, or be lost.
  std::fflush(nullptr);
  if (const auto variable = thread_waiting_variable())
    setenv(variable->first.c_str(), variable->second.c_str(), 1);
  execv(program.c_str(), argv);
  throw_cannot_run(program, errno);
}

}  // namespace hasten::cli
