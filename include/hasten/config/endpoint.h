// File: hasten/config/endpoint.h
// A host and a port, as people write them: "10.0.0.1:29500", "[2001:db8::1]:29500", "node7".
//
// Needs no torch. Throws ConfigError "config.endpoint". Thread rule: values.
#pragma once

#include <string>
#include <string_view>

namespace hasten {

struct Endpoint {
  std::string host;
  int port = 0;
};

Endpoint endpoint_of(std::string_view text, int port_if_none);
std::string text_of(const Endpoint& endpoint);

}  // namespace hasten
