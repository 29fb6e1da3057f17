// File: rendezvous/refusal.h (internal)
// Explains why a launcher cannot join the job: its description of the job differs from this
// process's or another machine's. The functions return the message to send, or null.
//
//   // Sends {"kind": "refused", ...}.
//   if (const auto refusal = check_request(request, settings)) send(id, *refusal);
//   if (const auto refusal = check_consistency(request, other, settings)) send(id, *refusal);
//
// Thread rule: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "rendezvous/agent_message.h"
#include "rendezvous/coordinator_settings.h"

namespace hasten::rendezvous {

// Compares the launcher with this process's own settings.
std::optional<nlohmann::json> check_request(const JoinRequest& newcomer,
                                            const CoordinatorSettings& settings);

// Compares the launcher with a machine that has joined. It may be any of them, because they all
// agree.
std::optional<nlohmann::json> check_consistency(const JoinRequest& newcomer,
                                                const JoinRequest& other,
                                                const CoordinatorSettings& settings);

// Returns the refusal if `holder` already has the launcher's machine_rank.
nlohmann::json rank_taken_refusal(const JoinRequest& newcomer, const JoinRequest& holder);

}  // namespace hasten::rendezvous
