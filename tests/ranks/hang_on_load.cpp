// A library that never finishes loading, like a library on a file server that does not answer.
#include <unistd.h>

namespace {

struct NeverReady {
  [[gnu::noinline]] NeverReady() {  // the report names it
    while (true) pause();
  }
} const never_ready;

}  // namespace
