#include "rendezvous/agent_message.h"

#include <nlohmann/json.hpp>

#include "base/strict_json.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::rendezvous {
namespace {

using nlohmann::json;

// Returns the field, or null if the message has none.
const json* field_in(const json& message, const char* name, bool (json::*is_right)() const noexcept,
                     const char* expected) {
  if (!message.is_object())
    throw DataError("rendezvous.message",
                    {.what = "a message", .got = message.type_name(), .expected = "an object"});
  const auto found = message.find(name);
  if (found == message.end()) return nullptr;
  if (!((*found).*is_right)())
    throw DataError(
        "rendezvous.message",
        {.what = str("a message's ", name), .got = found->type_name(), .expected = expected});
  return &*found;
}

// The limit in bytes. Launchers send less, because they truncate the output of a failed rank.
constexpr std::size_t kMaxAgentMessageBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxDepth = 3;  // the most objects and lists that may enclose another

}  // namespace

json agent_message_of(const std::string& bytes) {
  if (bytes.size() > kMaxAgentMessageBytes)
    throw DataError("rendezvous.message",
                    {.what = "a launcher's message",
                     .got = str(bytes.size(), " bytes"),
                     .expected = str("at most ", kMaxAgentMessageBytes, " bytes")});
  try {
    return parse_strict_json(bytes, {.max_depth = kMaxDepth});
  } catch (const JsonError& error) {
    throw DataError("rendezvous.message", {.what = "a launcher's message",
                                           .got = error.what(),
                                           .expected = "a JSON object of at most four levels"});
  }
}

std::string text_in(const json& message, const char* name, const std::string& other) {
  const json* const field = field_in(message, name, &json::is_string, "a string");
  return field ? field->get<std::string>() : other;
}

// Accepts only integers: converting a fraction or a number beyond 64 bits would be undefined.
std::int64_t number_in(const json& message, const char* name, std::int64_t other) {
  const json* const field = field_in(message, name, &json::is_number_integer, "an integer");
  if (field == nullptr) return other;
  const bool fits = !field->is_number_unsigned() || field->get<std::uint64_t>() >> 63 == 0;
  if (!fits)
    throw DataError("rendezvous.message",
                    {.what = str("a message's ", name), .expected = "a number below 2^63"});
  return field->get<std::int64_t>();
}

bool flag_in(const json& message, const char* name) {
  const json* const field = field_in(message, name, &json::is_boolean, "true or false");
  return field && field->get<bool>();
}

JoinRequest join_request_of(const json& message) {
  return {.protocol = number_in(message, "protocol", 0),
          .min_machines = number_in(message, "min_machines", 0),
          .max_machines = number_in(message, "max_machines", 0),
          .agent = text_in(message, "agent", ""),
          .host = text_in(message, "host", "?"),
          .address = text_in(message, "address", ""),
          .program = text_in(message, "program", ""),
          .job = text_in(message, "job", ""),
          .run_id = text_in(message, "run_id", ""),
          .processes = number_in(message, "processes", 1),
          .num_processes = number_in(message, "num_processes", 0),
          .requested_rank = number_in(message, "machine_rank", -1),
          .port = number_in(message, "port", 0),
          .attempt = number_in(message, "attempt", -1),
          .hosts_coordinator = flag_in(message, "hosts_coordinator")};
}

}  // namespace hasten::rendezvous
