#include "rendezvous/refusal.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/utf8.h"
#include "hasten/base/text.h"

namespace hasten::rendezvous {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxTextBytes = 256;  // Bytes; a host name has at most 253.

json refused(const char* code, std::string what, std::string got, std::string expected,
             std::string hint) {
  return {{"kind", "refused"},
          {"code", code},
          {"what", std::move(what)},
          {"got", std::move(got)},
          {"expected", std::move(expected)},
          {"hint", std::move(hint)}};
}

std::string abbreviated(const std::string& digest) { return std::string(utf8_prefix(digest, 12)); }

// Returns whether a terminal would interpret part of the text: control characters of ASCII, and of
// Latin-1 in UTF-8.
bool has_control_characters(const std::string& text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7F) return true;
    const bool is_latin = byte == 0xC2 && i + 1 < text.size();
    if (is_latin && static_cast<unsigned char>(text[i + 1]) < 0xA0) return true;
  }
  return false;
}

// Launchers print these texts on their machines, so a refusal does not repeat an unusable one.
std::optional<json> check_texts(const JoinRequest& newcomer) {
  for (const auto& [name, text] : {std::pair{"host name", &newcomer.host},
                                   {"address", &newcomer.address},
                                   {"program's digest", &newcomer.program},
                                   {"rdzv_id", &newcomer.job},
                                   {"run_id", &newcomer.run_id},
                                   {"launcher's identity", &newcomer.agent}}) {
    const bool is_long = text->size() > kMaxTextBytes;
    if (!is_long && !has_control_characters(*text)) continue;
    return refused("rendezvous.machines", str("the ", name, " of a machine that asks to join"),
                   is_long ? str(text->size(), " bytes") : "control characters",
                   str("at most ", kMaxTextBytes, " bytes without control characters"), "");
  }
  return std::nullopt;
}

// Every launcher of this protocol version sends these numbers in these ranges.
std::optional<json> check_numbers(const JoinRequest& newcomer,
                                  const CoordinatorSettings& settings) {
  if (newcomer.processes < 1 || newcomer.processes > 4096)
    return refused("rendezvous.machines", "processes of " + newcomer.host, str(newcomer.processes),
                   "1 to 4096", "");
  if (newcomer.port < 1 || newcomer.port > 65535)
    return refused("rendezvous.machines", "the port for the ranks on " + newcomer.host,
                   str(newcomer.port), "1 to 65535", "");
  if (newcomer.requested_rank < -1 || newcomer.requested_rank >= settings.max_machines)
    return refused("rendezvous.machine-rank", "machine_rank of " + newcomer.host,
                   str(newcomer.requested_rank), str("0 to ", settings.max_machines - 1), "");
  return std::nullopt;
}

}  // namespace

std::optional<json> check_request(const JoinRequest& newcomer,
                                  const CoordinatorSettings& settings) {
  if (auto refusal = check_texts(newcomer)) return refusal;
  if (newcomer.protocol != kProtocol) {
    return refused("rendezvous.version", "version of hasten on " + newcomer.host,
                   str("protocol ", newcomer.protocol), str("protocol ", kProtocol),
                   "install the same version of hasten on every machine");
  }
  if (newcomer.min_machines != settings.min_machines ||
      newcomer.max_machines != settings.max_machines) {
    return refused("rendezvous.machines", "number of machines given on " + newcomer.host,
                   str(newcomer.min_machines, ":", newcomer.max_machines),
                   str(settings.min_machines, ":", settings.max_machines),
                   "--num_machines (--nnodes) must be the same on every machine");
  }
  return check_numbers(newcomer, settings);
}

std::optional<json> check_consistency(const JoinRequest& newcomer, const JoinRequest& other,
                                      const CoordinatorSettings& settings) {
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
    return refused("rendezvous.program", "program on " + newcomer.host,
                   abbreviated(newcomer.program),
                   str(abbreviated(other.program), " (SHA-256), as on ", other.host),
                   "install the same build, or pass --rdzv_conf same_program=false");
  }
  const auto rank_text = [](std::int64_t rank) {
    return rank < 0 ? std::string("none") : std::to_string(rank);
  };
  if ((newcomer.requested_rank < 0) != (other.requested_rank < 0)) {
    return refused("rendezvous.machine-rank", "machine_rank of " + newcomer.host,
                   rank_text(newcomer.requested_rank),
                   str(rank_text(other.requested_rank), ", as on ", other.host),
                   "pass --machine_rank on every machine or on none");
  }
  return std::nullopt;
}

json rank_taken_refusal(const JoinRequest& newcomer, const JoinRequest& holder) {
  return refused(
      "rendezvous.machine-rank",
      str("machine_rank of ", newcomer.host, " (", newcomer.address, ")"),
      str(newcomer.requested_rank, ", which ", holder.host, " (", holder.address, ") already has"),
      "a different machine_rank on each machine", "");
}

}  // namespace hasten::rendezvous
