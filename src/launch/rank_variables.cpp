#include "launch/rank_variables.h"

#include "hasten/base/text.h"
#include "launch/job.h"
#include "machine/token.h"

namespace hasten {

VariableList rank_variables(const Round& round, std::int64_t local_rank, std::int64_t max_restarts,
                            const std::string& job) {
  const std::string rank = str(round.first_rank + local_rank), world = str(round.world_size);
  return {{"RANK", rank},
          {"LOCAL_RANK", str(local_rank)},
          {"WORLD_SIZE", world},
          {"LOCAL_WORLD_SIZE", str(round.processes)},
          {"GROUP_RANK", str(round.machine_rank)},
          {"GROUP_WORLD_SIZE", str(round.num_machines)},
          {"ROLE_NAME", "default"},
          {"ROLE_RANK", rank},
          {"ROLE_WORLD_SIZE", world},
          {"MASTER_ADDR", round.master_addr},
          {"MASTER_PORT", str(round.master_port)},
          {"TORCHELASTIC_RUN_ID", round.run_id.empty() ? job : round.run_id},
          {"TORCHELASTIC_RESTART_COUNT", str(round.attempt)},
          {"TORCHELASTIC_MAX_RESTARTS", str(max_restarts)},
          {"TORCHELASTIC_USE_AGENT_STORE", "False"},
          {kJobVariable, job},
          {kStoreVariable, round.store},
          {kTokenVariable, round.token}};
}

}  // namespace hasten
