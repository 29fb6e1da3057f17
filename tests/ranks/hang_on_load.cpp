// A library that is never loaded to the end, as one on a file server that does not answer.
#include <unistd.h>

namespace {

struct NeverReady {
  [[gnu::noinline]] NeverReady() {  // the report names it
    while (true) pause();
  }
} const never_ready;

}  // namespace
