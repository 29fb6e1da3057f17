#include "base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <initializer_list>

namespace hasten {

void open_closed_streams() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(file, F_GETFD) >= 0) continue;
    [[maybe_unused]] const int lowest = open("/dev/null", O_RDWR);  // gets the number `file`
  }
}

}  // namespace hasten
