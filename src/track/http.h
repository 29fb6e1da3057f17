// File: track/http.h (internal)
// Sends one request to an HTTP server and reads its answer, for trackers with a server. Plain HTTP
// only; each request has a connection of its own.
//
//   const HttpAddress server = parse_http_address("http://node1:5000/mlflow");
//   const HttpAnswer answer = send_http(server, {.method = "POST", .path = "/api", .body = json}, 10);
//   if (answer.status != 200) report(answer.why);
//
// parse_http_address throws ConfigError "track.http-address"; send_http throws nothing but
// std::bad_alloc. Thread rule: any thread; send_http blocks. Source: RFC 9112; requests are
// HTTP/1.0, so that an answer ends with its connection and has no chunks.
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

struct HttpAnswer {
  int status = 0;  // 0 if there is no answer.
  std::string body;
  std::string why;  // The reason, if there is no answer.
};

HttpAddress parse_http_address(const std::string& text);
// Blocks for at most `seconds`.
HttpAnswer send_http(const HttpAddress& address, const HttpRequest& request, double seconds);
// Returns the text with every byte as %XX, except letters, digits and "-._~".
std::string percent_encoded(const std::string& text);

}  // namespace hasten
