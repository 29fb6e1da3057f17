// File: launch/unknown_host.h (internal)
// Handles the case that the name of the machine to meet at is unknown.
// Thread rule: any thread.
#pragma once

#include <cstdlib>
#include <string>

#include "hasten/base/error.h"

namespace hasten {

// True if an unknown host name may become known later, so that a retry is useful. In Kubernetes a
// name exists only once its pod exists.
inline bool host_names_may_appear_later() {
  return std::getenv("KUBERNETES_SERVICE_HOST") != nullptr;
}

inline IoError unknown_host_error(const std::string& host, const std::string& why) {
  return IoError("rendezvous.host",
                 {.what = "the coordinator's host " + host,
                  .got = why,
                  .expected = "a name or address that this machine can resolve"});
}

}  // namespace hasten
