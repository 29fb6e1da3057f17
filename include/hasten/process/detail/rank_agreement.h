// File: hasten/process/detail/rank_agreement.h
// Asks whether a condition holds in every process of a group.
//
//   const bool has_memory = true;
//   if (is_true_on_all_ranks(group, has_memory)) prepare_cache();
//
// Thread rule: the same as for the group's collectives.
#pragma once

#include "hasten/base/detail/export.h"
#include "hasten/process/group.h"

namespace hasten {

// Returns whether `own` is true in every process. A collective.
HASTEN_API bool is_true_on_all_ranks(const Group& group, bool own);

}  // namespace hasten
