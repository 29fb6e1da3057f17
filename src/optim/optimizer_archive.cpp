#include "optim/optimizer_archive.h"

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "base/parse_number.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

using torch::serialize::InputArchive;

std::size_t count_in(InputArchive& archive, const char* key) {
  at::Tensor count;
  archive.read(key, count);
  return static_cast<std::size_t>(count.item<std::int64_t>());
}

void require_count(const char* optimizer, std::size_t got, std::size_t expected,
                   const char* of_what) {
  if (got == expected) return;
  throw DataError("optim.group-count", {.what = str(optimizer, ", the saved state"),
                                        .got = str(got, of_what),
                                        .expected = str(expected)});
}

}  // namespace

void* saved_address(const std::string& key, const char* optimizer) {
  const auto address = parse_number<std::uintptr_t>(key);
  if (!address) {
    throw DataError("optim.parameter-key", {.what = str(optimizer, ", the saved state"),
                                            .got = "the parameter \"" + key + "\"",
                                            .expected = "an address in decimal digits"});
  }
  return reinterpret_cast<void*>(*address);
}

void read_groups(InputArchive& archive, torch::optim::Optimizer& optimizer, const char* name,
                 SavedOptimizerStates saved, const OptionsCheck& check_options) {
  auto& groups = optimizer.param_groups();
  InputArchive saved_groups;
  archive.read("param_groups", saved_groups);
  require_count(name, count_in(saved_groups, "param_groups/size"), groups.size(),
                " groups of parameters");
  // Everything is read before anything changes.
  std::vector<InputArchive> options;
  SavedOptimizerStates states;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::vector<at::Tensor>& parameters = groups[i].params();
    InputArchive group, group_options;
    saved_groups.read(str("param_groups/", i), group);
    require_count(name, count_in(group, "params/size"), parameters.size(),
                  " parameters in a group");
    for (std::size_t n = 0; n < parameters.size(); ++n) {
      c10::IValue key;
      group.read(str("params/", n), key);
      const auto found = saved.find(saved_address(key.toStringRef(), name));
      // If a parameter is listed twice, its first place has taken the state.
      if (found == saved.end() || found->second == nullptr) continue;
      states[parameters[n].unsafeGetTensorImpl()] = std::move(found->second);
    }
    group.read("options", group_options);
    const auto copy = groups[i].options().clone();
    copy->serialize(group_options);
    check_options(*copy);
    options.push_back(std::move(group_options));
  }
  optimizer.state() = std::move(states);
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i].options().serialize(options[i]);
}

}  // namespace hasten
