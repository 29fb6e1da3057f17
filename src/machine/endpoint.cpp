#include "machine/endpoint.h"

#include <cstdint>

#include "base/parse_number.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {

Endpoint parse_endpoint(std::string_view text, int port_if_none) {
  const auto throw_invalid = [&] {
    throw ConfigError("config.endpoint", {.what = "an endpoint",
                                          .got = str("'", text, "'"),
                                          .expected = "HOST:PORT, such as 10.0.0.1:29500 or "
                                                      "[2001:db8::1]:29500"});
  };
  Endpoint endpoint{.host = std::string(text), .port = port_if_none};
  std::string port;
  if (starts_with(text, "[")) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) throw_invalid();
    endpoint.host = std::string(text.substr(1, end - 1));
    const std::string_view rest = text.substr(end + 1);
    if (!rest.empty() && rest[0] != ':') throw_invalid();
    if (!rest.empty()) port = std::string(rest.substr(1));
    if (!rest.empty() && port.empty()) throw_invalid();
  } else if (const std::size_t colon = text.find(':');
             colon != std::string_view::npos && colon == text.rfind(':')) {
    endpoint.host = std::string(text.substr(0, colon));
    port = std::string(text.substr(colon + 1));
    if (port.empty()) throw_invalid();
  }
  if (!port.empty()) {
    const auto number = parse_number<std::uint16_t>(port);
    if (!number) throw_invalid();
    endpoint.port = *number;
  }
  if (endpoint.host.empty() || endpoint.host.find_first_of(" /@") != std::string::npos)
    throw_invalid();
  return endpoint;
}

std::string to_text(const Endpoint& endpoint) {
  const bool six = endpoint.host.find(':') != std::string::npos;
  return str(six ? "[" : "", endpoint.host, six ? "]:" : ":", endpoint.port);
}

}  // namespace hasten
