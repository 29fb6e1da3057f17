// File: base/standard_streams.h (internal)
// Keeps the numbers of the standard streams for these streams. A process that was started without
// one (`2>&-`, some daemons) gives its number to the first file that it opens, and what the process
// prints is then written to this file.
//
//   int main() {
//     open_closed_streams();
//
// Thread rule: before there are other threads.
#pragma once

#include "base/internal_api.h"

namespace hasten {

// Opens /dev/null for each closed standard stream, so that no other file gets its number.
HASTEN_INTERNAL_API void open_closed_streams();

}  // namespace hasten
