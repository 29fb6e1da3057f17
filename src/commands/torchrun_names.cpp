#include "commands/torchrun_names.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "machine/installed_devices.h"
#include "machine/installed_gpus.h"
#include "options/variable_of.h"

namespace hasten::config {
namespace {

using NameGroup = std::vector<std::string>;

using Translation = std::pair<std::string_view, std::string_view>;

// Names that differ from hasten's: names of torchrun (nnodes and its other names are the same), and
// flags of Accelerate that have a different name in its files.
constexpr Translation kLongNames[] = {
    {"node_rank", "machine_rank"},
    {"master_addr", "main_process_ip"},
    {"master_port", "main_process_port"},
    {"env", "tpu_env"},
    {"vm", "tpu_vm"},
    {"tpu_cluster", "tpu_use_cluster"},
    {"cpu", "use_cpu"},
    {"no_tpu_cluster", "no_tpu_use_cluster"},
};
// Short names, which other launchers use too.
constexpr Translation kShortNames[] = {{"-n", "--num_processes"},
                                       {"-np", "--num_processes"},
                                       {"-q", "--quiet"},
                                       {"-r", "--redirects"},
                                       {"-t", "--tee"}};

// Returns the translation of a name, or an empty text if there is none.
template <std::size_t Size>
std::string translate(const Translation (&table)[Size], std::string_view name) {
  const auto found = std::find_if(std::begin(table), std::end(table),
                                  [&](const Translation& each) { return each.first == name; });
  return found == std::end(table) ? "" : std::string(found->second);
}

std::string hasten_name(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return translate(kLongNames, name);
}

// If a source sets one of the stronger names, the weaker names of weaker sources do not count.
struct Override {
  NameGroup stronger;
  NameGroup weaker;
};

const std::array<Override, 4>& overrides() {
  static const NameGroup machines = {"num_machines", "nnodes"};
  static const NameGroup processes = {"num_processes", "nproc_per_node"};
  // An endpoint is an address with a port, and implies the backend c10d. A port alone leaves the
  // address as it is.
  static const std::array<Override, 4> all = {
      Override{machines, machines}, Override{processes, processes},
      Override{{"rdzv_endpoint"}, {"main_process_ip", "main_process_port", "rdzv_backend"}},
      Override{{"main_process_ip"}, {"rdzv_endpoint"}}};
  return all;
}

bool includes(const NameGroup& group, const std::string& name) {
  return std::find(group.begin(), group.end(), name) != group.end();
}

bool sets_any_of(const std::vector<Assignment>& source, const NameGroup& group) {
  return std::any_of(source.begin(), source.end(),
                     [&](const Assignment& each) { return includes(group, each.key); });
}

// Returns the address of an endpoint, which may have a port.
std::string without_port(const std::string& endpoint) {
  const std::size_t colon = endpoint.rfind(':');
  if (colon == endpoint.npos || endpoint.find(']', colon) != endpoint.npos) return endpoint;
  const bool is_only_colon = endpoint.find(':') == colon;  // an IPv6 address needs brackets
  const bool is_after_bracket = colon > 0 && endpoint[colon - 1] == ']';
  return is_only_colon || is_after_bracket ? endpoint.substr(0, colon) : endpoint;
}

// A port leaves the address of a weaker endpoint as it is.
void remove_overridden_port(std::vector<Assignment>& weaker,
                            const std::vector<Assignment>& stronger) {
  if (!sets_any_of(stronger, {"main_process_port"})) return;
  for (Assignment& each : weaker) {
    auto* const endpoint = std::get_if<std::string>(&each.value);
    if (each.key == "rdzv_endpoint" && endpoint != nullptr) *endpoint = without_port(*endpoint);
  }
}

void remove_overridden(std::vector<Assignment>& weaker, const std::vector<Assignment>& stronger) {
  remove_overridden_port(weaker, stronger);
  for (const Override& rule : overrides()) {
    if (!sets_any_of(stronger, rule.stronger)) continue;
    std::erase_if(weaker, [&](const Assignment& each) { return includes(rule.weaker, each.key); });
  }
}

std::int64_t cpus() { return std::max<std::int64_t>(1, std::thread::hardware_concurrency()); }

std::int64_t process_count_for(const std::string& kind, const Origin& origin) {
  if (kind != "gpu") {
    const std::int64_t devices = kind == "auto" ? installed_devices() : 0;
    return devices > 0 ? devices : cpus();
  }
  const auto gpus = static_cast<std::int64_t>(visible_gpus().size());
  if (gpus > 0) return gpus;
  throw ConfigError("config.bad-value",
                    {.what = origin.where,
                     .got = "gpu",
                     .expected = "a GPU in this machine that CUDA_VISIBLE_DEVICES leaves"});
}

}  // namespace

std::string to_hasten_name(const std::string& argument) {
  if (const std::string name = translate(kShortNames, argument); !name.empty()) return name;
  if (!starts_with(argument, "--")) return argument;
  const std::size_t equals = argument.find('=');
  const std::string own =
      hasten_name(argument.substr(2, equals == argument.npos ? argument.npos : equals - 2));
  if (own.empty()) return argument;
  return "--" + own + (equals == argument.npos ? "" : argument.substr(equals));
}

std::vector<Assignment> torchrun_variables(const Environment& environment) {
  std::vector<Assignment> assignments;
  for (const char* name : {"nnodes", "nproc_per_node", "node_rank", "master_addr", "master_port",
                           "rdzv_endpoint", "rdzv_backend", "rdzv_id", "max_restarts"}) {
    std::string variable = std::string("PET_") + name;
    for (char& character : variable) {
      if (character >= 'a' && character <= 'z')
        character = static_cast<char>(character - 'a' + 'A');
    }
    const std::string value = variable_of(environment, variable);
    if (value.empty()) continue;
    const std::string own = hasten_name(name);
    assignments.push_back({.key = own.empty() ? name : own,
                           .value = value,
                           .origin = {Origin::Source::environment, variable},
                           .places = {}});
  }
  return assignments;
}

void remove_overridden_synonyms(std::vector<std::vector<Assignment>>& sources) {
  // Begins with the strongest source, so that a name that is removed overrides nothing itself.
  for (std::size_t weaker = sources.size(); weaker-- > 0;) {
    for (std::size_t stronger = weaker + 1; stronger < sources.size(); ++stronger)
      remove_overridden(sources[weaker], sources[stronger]);
  }
}

bool resolve_process_count(std::vector<Assignment>& assignments) {
  bool counted = false;
  for (Assignment& each : assignments) {
    const auto* text = std::get_if<std::string>(&each.value);
    if (each.key != "nproc_per_node" || text == nullptr) continue;
    if (*text != "gpu" && *text != "cpu" && *text != "auto") continue;
    each.value = process_count_for(*text, each.origin);
    counted = true;
  }
  return counted;
}

}  // namespace hasten::config
