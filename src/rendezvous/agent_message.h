// File: rendezvous/agent_message.h (internal)
// Reads what a launcher (an agent) tells the coordinator. It comes over the network, so every field
// may be missing or of a wrong type.
//
//   const json message = agent_message_of(bytes);
//   const JoinRequest request = join_request_of(message);
//   const std::int64_t code = number_in(message, "code", 1);
//
// Throws DataError "rendezvous.message" for a field of the wrong type and for a message that is too
// long or too deep, nlohmann's parse_error for one that is not JSON. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace hasten::rendezvous {

// 2: agents have an identity, and messages name the attempt that they are about.
inline constexpr std::int64_t kProtocol = 2;

// What a launcher says about itself and its machine when it asks for a place in the next round.
struct JoinRequest {
  std::int64_t protocol = 0, min_machines = 0, max_machines = 0;
  std::string agent;  // a random identity by which the launcher is known on its next connection
  std::string host, address, program, job, run_id;
  std::int64_t processes = 1, num_processes = 0, wanted_rank = -1, port = 0;
  std::int64_t attempt = -1;  // the last round that the launcher was told
  bool serves = false;        // it is the launcher of the coordinator's own process
};

nlohmann::json agent_message_of(const std::string& bytes);
JoinRequest join_request_of(const nlohmann::json& message);

// A field of the message, or `other` if the message has none.
std::string text_in(const nlohmann::json& message, const char* name, const std::string& other);
std::int64_t number_in(const nlohmann::json& message, const char* name, std::int64_t other);
bool flag_in(const nlohmann::json& message, const char* name);

}  // namespace hasten::rendezvous
