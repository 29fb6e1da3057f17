// File: machine/endpoint.h (internal)
// A host with a port, as text and as a struct.
//
//   parse_endpoint("10.0.0.1:29500", 0).port;         // 29500
//   parse_endpoint("[2001:db8::1]:29500", 0).host;    // "2001:db8::1"
//   parse_endpoint("node7", 29500).port;              // 29500
//
// Needs no torch. Throws ConfigError "config.endpoint". Thread rule: values.
#pragma once

#include <string>
#include <string_view>

#include "base/internal_api.h"

namespace hasten {

struct Endpoint {
  std::string host;
  int port = 0;
};

// Parses a text; `port_if_none` is the port of a text without one.
HASTEN_INTERNAL_API Endpoint parse_endpoint(std::string_view text, int port_if_none);
// Formats HOST:PORT, with brackets around an IPv6 address.
HASTEN_INTERNAL_API std::string to_text(const Endpoint& endpoint);

}  // namespace hasten
