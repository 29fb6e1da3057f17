// File: rendezvous/refusal.h (internal)
// Why a launcher that asks to join cannot be part of the job: what it says about the job differs
// from what this process or another machine of the job says.
//
//   if (const auto no = refusal_of(request, settings)) send(id, *no);          // {"kind":
//   "refused", ...} if (const auto no = contradiction(request, other, settings)) send(id, *no);
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

// Compares it with any one machine that has joined: all of those agree with each other.
std::optional<nlohmann::json> contradiction(const JoinRequest& newcomer, const JoinRequest& other,
                                            const Settings& settings);

// Another machine has the machine_rank that the launcher was started with.
nlohmann::json rank_taken(const JoinRequest& newcomer, const JoinRequest& holder);

}  // namespace hasten::rendezvous
