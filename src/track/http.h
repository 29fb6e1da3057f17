// File: track/http.h (internal)
// Sends one request to an HTTP server and reads its response, for trackers with a server. Plain
// HTTP only; each request has a connection of its own.
//
//   const HttpAddress server = parse_http_address("http://node1:5000/mlflow");
//   const HttpRequest request{.method = "POST", .path = "/api", .body = json};
//   const HttpResponse response = send_http(server, request, 10);
//   if (response.status != 200) report(response.reason);
//
// parse_http_address throws ConfigError "track.http-address"; send_http throws nothing but
// std::bad_alloc. Thread rule: any thread; send_http blocks. Source: RFC 9112; requests are
// HTTP/1.0, so that a response ends with its connection and has no chunks.
#pragma once

#include <string>

#include "machine/endpoint.h"

namespace hasten {

struct HttpAddress {
  Endpoint server;
  std::string path;  // The part before each request's path, without a slash at its end.
};

struct HttpRequest {
  std::string method = "GET";
  std::string path;   // With its query.
  std::string body;   // JSON.
  std::string token;  // Sent as "Authorization: Bearer" unless it is empty.
};

struct HttpResponse {
  int status = 0;  // 0 if there is no response.
  std::string body;
  std::string reason;  // The reason, if there is no response.
};

HttpAddress parse_http_address(const std::string& text);
// Blocks for at most `seconds`.
HttpResponse send_http(const HttpAddress& address, const HttpRequest& request, double seconds);
// Returns the text with every byte as %XX, except letters, digits and "-._~".
std::string percent_encoded(const std::string& text);

}  // namespace hasten
