#include "tpu/launch/tpu_slice.h"

#include "base/parse_number.h"
#include "hasten/base/text.h"

namespace hasten {

std::optional<std::vector<std::string>> TpuSlice::hosts() const {
  if (num_machines_ == 1) return std::vector<std::string>{"localhost"};
  const std::vector<std::string> named = split(variables_.text(kTpuHosts), ',');
  if (!variables_.has(kTpuHosts) || static_cast<std::int64_t>(named.size()) != num_machines_)
    return std::nullopt;
  return named;
}

std::optional<std::int64_t> TpuSlice::base_port() const {
  constexpr std::int64_t kDefault = 8070;  // torch_tpu's default for several machines
  if (!variables_.has(kTpuBasePort)) return kDefault;
  const auto port = parse_number<std::int64_t>(variables_.text(kTpuBasePort));
  return port && *port > 0 && *port <= highest_base_port() ? port : std::nullopt;
}

std::string TpuSlice::addresses(const std::vector<std::string>& hosts,
                                std::int64_t base_port) const {
  std::vector<std::string> all;
  for (const std::string& host : hosts) {
    for (std::int64_t local = 0; local < processes_; ++local)
      all.push_back(str(host, ":", base_port + local));
  }
  return join(all, ",");
}

}  // namespace hasten
