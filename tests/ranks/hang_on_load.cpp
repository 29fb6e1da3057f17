// A library whose loading never ends, like one on a file server that does not answer.
#include <unistd.h>

namespace {

struct NeverReady {
  [[gnu::noinline]] NeverReady() {  // the report names it
    while (true) pause();
  }
} const never_ready;

}  // namespace
