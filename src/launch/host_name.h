// File: launch/host_name.h (internal)
// This machine's name, and what a launcher does about the name of the machine to meet at when it is
// not found.
// Thread rule: pure functions.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "hasten/base/error.h"

namespace hasten {

inline std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

// In Kubernetes a name comes with its pod, so an unknown one is asked for again.
inline bool names_may_come() { return std::getenv("KUBERNETES_SERVICE_HOST") != nullptr; }

inline IoError unknown_host(const std::string& host, const std::string& why) {
  return IoError("rendezvous.host", {.what = "the machine to meet at, " + host,
                                     .got = why,
                                     .expected = "a name or an address that this machine knows"});
}

}  // namespace hasten
