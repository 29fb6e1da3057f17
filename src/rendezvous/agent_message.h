// File: rendezvous/agent_message.h (internal)
// Parses the messages that a launcher (an "agent") sends to the coordinator. They come over the
// network, so any field may be missing or have the wrong type.
//
//   const json message = agent_message_of(bytes);
//   const JoinRequest request = join_request_of(message);
//   const std::int64_t code = number_in(message, "code", 1);
//
// Throws DataError "rendezvous.message" if a field has the wrong type, or if the message is not
// JSON, repeats a key, or is too long or too deep. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace hasten::rendezvous {

// Version 2 adds the agent's identity and the attempt that each message refers to. Version 3
// renames fields and a message.
inline constexpr std::int64_t kProtocol = 3;

// A launcher's description of itself and its machine when it asks to join the next round.
struct JoinRequest {
  std::int64_t protocol = 0, min_machines = 0, max_machines = 0;
  // A random identity that stays the same when the launcher reconnects.
  std::string agent;
  std::string host, address, program, job, run_id;
  std::int64_t processes = 1, num_processes = 0, requested_rank = -1, port = 0;
  std::int64_t attempt = -1;       // The last round that the launcher has received.
  bool hosts_coordinator = false;  // The launcher runs in the coordinator's process.
};

nlohmann::json agent_message_of(const std::string& bytes);
JoinRequest join_request_of(const nlohmann::json& message);

// Returns a text field of the message, or `other` if there is none.
std::string text_in(const nlohmann::json& message, const char* name, const std::string& other);
// Returns an integer field in the same way.
std::int64_t number_in(const nlohmann::json& message, const char* name, std::int64_t other);
// Returns a boolean field, or false if there is none.
bool flag_in(const nlohmann::json& message, const char* name);

}  // namespace hasten::rendezvous
