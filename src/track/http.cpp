#include "track/http.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <system_error>

#include "base/descriptor.h"
#include "base/parse_number.h"
#include "base/poll_timeout.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "rendezvous/sockets.h"

namespace hasten {
namespace {

using HttpClock = std::chrono::steady_clock;
constexpr std::size_t kMaxResponseBytes = 16 << 20;

// Returns false if the socket is not ready before the deadline.
bool wait_for_socket(int socket, short events, HttpClock::time_point deadline) {
  while (true) {
    if (HttpClock::now() >= deadline) return false;
    pollfd waiting{.fd = socket, .events = events, .revents = 0};
    const int ready = ::poll(&waiting, 1, poll_timeout(deadline));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool send_all(int socket, std::string_view bytes, HttpClock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno != EINTR && !rendezvous::is_retryable_socket_error(errno)) {
      return false;
    } else if (!wait_for_socket(socket, POLLOUT, deadline)) {
      return false;
    }
  }
  return true;
}

// Reads until the server closes the connection. Returns false if that takes too long.
bool receive_all(int socket, std::string& bytes, HttpClock::time_point deadline) {
  char buffer[16384];
  while (bytes.size() < kMaxResponseBytes) {
    if (!wait_for_socket(socket, POLLIN, deadline)) return false;
    const ssize_t received = ::recv(socket, buffer, sizeof buffer, MSG_DONTWAIT);
    if (received == 0) return true;
    if (received > 0) {
      bytes.append(buffer, static_cast<std::size_t>(received));
    } else if (errno != EINTR && !rendezvous::is_retryable_socket_error(errno)) {
      return false;
    }
  }
  return false;
}

std::string request_text(const HttpAddress& address, const HttpRequest& request) {
  std::string text = str(request.method, " ", address.path, request.path,
                         " HTTP/1.0\r\nHost: ", to_text(address.server), "\r\nAccept: */*\r\n");
  if (!request.token.empty()) text += "Authorization: Bearer " + request.token + "\r\n";
  if (!request.body.empty())
    text += str("Content-Type: application/json\r\nContent-Length: ", request.body.size(), "\r\n");
  return text + "\r\n" + request.body;
}

// Reads "HTTP/1.1 200 OK", headers, an empty line and the body.
HttpResponse parse_response(const std::string& text) {
  const std::size_t head = text.find("\r\n\r\n");
  const std::size_t space = text.find(' ');
  if (!starts_with(text, "HTTP/1.") || head == text.npos || space > head)
    return {.status = 0, .body = "", .reason = "the response is not HTTP"};
  const auto status = parse_number<int>(std::string_view(text).substr(space + 1, 3));
  if (!status) return {.status = 0, .body = "", .reason = "the response is not HTTP"};
  return {.status = *status, .body = text.substr(head + 4), .reason = ""};
}

}  // namespace

HttpAddress parse_http_address(const std::string& text) {
  constexpr std::string_view kScheme = "http://";
  constexpr int kDefaultPort = 80;
  if (!starts_with(text, kScheme)) {
    throw ConfigError(
        "track.http-address",
        {.what = "address of a server",
         .got = "'" + text + "'",
         .expected = "http://HOST:PORT or http://HOST:PORT/PATH",
         .hint = starts_with(text, "https://") ? "TLS is not supported: use a proxy on this machine"
                                               : ""});
  }
  const std::string rest = text.substr(kScheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  HttpAddress address{.server = parse_endpoint(rest.substr(0, slash), kDefaultPort),
                      .path = rest.substr(slash)};
  while (!address.path.empty() && address.path.back() == '/') address.path.pop_back();
  return address;
}

HttpResponse send_http(const HttpAddress& address, const HttpRequest& request, double seconds) {
  const auto deadline =
      HttpClock::now() + std::chrono::duration_cast<HttpClock::duration>(
                             std::chrono::duration<double>(std::max(seconds, 0.0)));
  const rendezvous::ConnectResult connected = rendezvous::connect_to(address.server, seconds);
  const Descriptor socket(connected.socket);
  if (socket.get() < 0) return {.status = 0, .body = "", .reason = connected.error};
  std::string response;
  if (send_all(socket.get(), request_text(address, request), deadline) &&
      receive_all(socket.get(), response, deadline))
    return parse_response(response);
  return {.status = 0,
          .body = "",
          .reason = HttpClock::now() >= deadline ? str("no response within ", seconds, " seconds")
                                                 : "the connection was closed"};
}

std::string percent_encoded(const std::string& text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte < 0x80 && (std::isalnum(byte) != 0 || character == '-' || character == '.' ||
                        character == '_' || character == '~')) {
      out += character;
    } else {
      ((out += '%') += kDigits[byte >> 4]) += kDigits[byte & 15];
    }
  }
  return out;
}

}  // namespace hasten
