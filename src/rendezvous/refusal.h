// File: rendezvous/refusal.h (internal)
// Explains why a launcher cannot join the job: its description of the job differs from this
// process's or another machine's. The functions return the message to send, or null.
//
//   if (const auto no = refusal_of(request, settings)) send(id, *no);  // {"kind": "refused", ...}
//   if (const auto no = contradiction(request, other, settings)) send(id, *no);
//
// Thread rule: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "rendezvous/agent_message.h"
#include "rendezvous/settings.h"

namespace hasten::rendezvous {

// Compares the launcher with this process's own settings.
std::optional<nlohmann::json> refusal_of(const JoinRequest& newcomer, const Settings& settings);

// Compares the launcher with any machine that has joined, since all of those agree.
std::optional<nlohmann::json> contradiction(const JoinRequest& newcomer, const JoinRequest& other,
                                            const Settings& settings);

// `holder` already has the launcher's machine_rank.
nlohmann::json rank_taken(const JoinRequest& newcomer, const JoinRequest& holder);

}  // namespace hasten::rendezvous
