// File: config/accelerate_names.h (internal)
// The keys of Accelerate's configuration files (1.15) beside those that are options of `hasten
// launch`. Thread rule: constants.
#pragma once

#include <string>
#include <vector>

namespace hasten::config {

// A key that holds a map.
struct Section {
  std::string name;
  std::string prefix;          // of the names inside it: "fsdp_"
  bool prefix_may_be_missing;  // as where people wrote it by hand: fsdp_config: {version: 2}
  std::vector<std::string> names;
  std::string engine;  // the distributed_type that reads it; empty: judged by what it holds
  std::string reason;  // why it is ignored

  // The name as it is to be written; empty where it is none of this section.
  std::string full_name(const std::string& key) const;
};

// Keys of the file itself that mean something elsewhere.
struct KeyGroup {
  std::string reason;
  std::vector<std::string> names;
};

const std::vector<Section>& sections();
const Section* find_section(const std::string& name);
// The section that a key belongs into; nullptr: none.
const Section* section_of(const std::string& key);

// The reason of the keys that `hasten tpu-config` reads, or that need more than one machine.
inline constexpr const char* kForTpus = "for TPUs";
// As files say distributed_type, the first ones TPU.
bool means_tpus(const std::string& distributed_type);

const std::vector<KeyGroup>& key_groups();
const KeyGroup* group_of(const std::string& key);

// All names that a file may hold beside options.
std::vector<std::string> accelerate_names();

}  // namespace hasten::config
