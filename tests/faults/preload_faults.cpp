// Makes calls of any program fail. The program needs HASTEN_FAULT="CALL KIND FOLDER REPORT" in its
// environment, and this library with watched_calls.cpp in LD_PRELOAD. KIND is kill, io, full,
// read_only, short, stays_full, slow or none. When a process arrives at the call, it creates the
// file REPORT.
#include <cstdlib>
#include <sstream>
#include <string>

#include "faults/watched_calls.h"

namespace {

Fault parse_fault(const std::string& name) {
  if (name == "io") return Fault::io_error;
  if (name == "full") return Fault::disk_full;
  if (name == "read_only") return Fault::read_only;
  if (name == "short") return Fault::short_write;
  if (name == "stays_full") return Fault::stays_full;
  if (name == "slow") return Fault::slow_disk;
  if (name == "none") return Fault::none;
  return Fault::kill;
}

[[gnu::constructor]] void watch_from_environment() {
  const char* const text = std::getenv("HASTEN_FAULT");
  if (text == nullptr) return;
  std::istringstream words(text);
  long call = kNever;
  std::string kind, folder, report;
  if (words >> call >> kind >> folder >> report)
    watch_calls(folder, call, parse_fault(kind), report);
}

}  // namespace
