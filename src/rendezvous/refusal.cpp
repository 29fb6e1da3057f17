#include "rendezvous/refusal.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "hasten/base/text.h"

namespace hasten::rendezvous {
namespace {

using nlohmann::json;

json refused(const char* code, std::string what, std::string got, std::string expected,
             std::string hint) {
  return {{"kind", "refused"},
          {"code", code},
          {"what", std::move(what)},
          {"got", std::move(got)},
          {"expected", std::move(expected)},
          {"hint", std::move(hint)}};
}

// The first letters of a digest. A letter of UTF-8 is not cut: JSON could not hold half of one.
std::string beginning(const std::string& text) {
  std::size_t size = std::min<std::size_t>(text.size(), 12);
  while (size > 0 && size < text.size() && (text[size] & 0xC0) == 0x80) --size;
  return text.substr(0, size);
}

}  // namespace

std::optional<json> refusal_of(const JoinRequest& newcomer, const Settings& settings) {
  if (newcomer.protocol != kProtocol) {
    return refused("rendezvous.version", "hasten of " + newcomer.host,
                   str("protocol ", newcomer.protocol), str("protocol ", kProtocol),
                   "the same hasten on every machine");
  }
  if (newcomer.min_machines != settings.min_machines ||
      newcomer.max_machines != settings.max_machines) {
    return refused("rendezvous.machines",
                   newcomer.host + " was started for another number of machines",
                   str(newcomer.min_machines, ":", newcomer.max_machines),
                   str(settings.min_machines, ":", settings.max_machines),
                   "--num_machines (--nnodes) must be the same on every machine");
  }
  if (newcomer.processes < 1 || newcomer.processes > 4096)
    return refused("rendezvous.machines", "processes of " + newcomer.host, str(newcomer.processes),
                   "1 to 4096", "");
  return std::nullopt;
}

std::optional<json> contradiction(const JoinRequest& newcomer, const JoinRequest& other,
                                  const Settings& settings) {
  if (newcomer.num_processes != other.num_processes) {
    return refused("rendezvous.machines", "num_processes of " + newcomer.host,
                   str(newcomer.num_processes), str(other.num_processes, ", as on ", other.host),
                   "num_processes is the total of all machines, the same on each");
  }
  if (newcomer.job != other.job) {
    return refused("rendezvous.machines", "rdzv_id of " + newcomer.host, "'" + newcomer.job + "'",
                   str("'", other.job, "', as on ", other.host),
                   "rdzv_id is the job's name, the same on each machine");
  }
  if (settings.same_program && newcomer.program != other.program) {
    return refused("rendezvous.program", "another program on " + newcomer.host,
                   beginning(newcomer.program),
                   str(beginning(other.program), " (SHA-256), as on ", other.host),
                   "install the same build, or say --rdzv_conf same_program=false");
  }
  const auto rank_text = [](std::int64_t rank) {
    return rank < 0 ? std::string("none") : std::to_string(rank);
  };
  if ((newcomer.wanted_rank < 0) != (other.wanted_rank < 0)) {
    return refused("rendezvous.machine-rank", "machine_rank of " + newcomer.host,
                   rank_text(newcomer.wanted_rank),
                   str(rank_text(other.wanted_rank), " on ", other.host),
                   "say --machine_rank on every machine or on none");
  }
  return std::nullopt;
}

json rank_taken(const JoinRequest& newcomer, const JoinRequest& holder) {
  return refused("rendezvous.machine-rank",
                 str("machine_rank ", newcomer.wanted_rank, " of ", newcomer.host, " (",
                     newcomer.address, ")"),
                 str(holder.host, " (", holder.address, ") has it"),
                 "a rank of its own for each machine", "");
}

}  // namespace hasten::rendezvous
