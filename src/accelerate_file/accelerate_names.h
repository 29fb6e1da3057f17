// File: accelerate_file/accelerate_names.h (internal)
// The keys of Accelerate's configuration files (1.15) that are not options of `hasten launch`.
// Thread rule: constants.
#pragma once

#include <string>
#include <vector>

namespace hasten::config {

// A key whose value is a map.
struct Section {
  std::string name;
  std::string prefix;          // begins the names in the map: "fsdp_"
  bool prefix_may_be_missing;  // in files written by hand: fsdp_config: {version: 2}
  std::vector<std::string> names;
  // The distributed_type that uses the section. If it is empty, other values decide.
  std::string engine;
  std::string reason;  // why `hasten launch` ignores it

  // The full name of `key` in this section; empty if the section has no such key.
  std::string full_name(const std::string& key) const;
};

// Top-level keys of a file that `hasten launch` does not use, for the same reason.
struct KeyGroup {
  std::string reason;
  std::vector<std::string> names;
};

const std::vector<Section>& sections();
// Null if there is no such section.
const Section* find_section(const std::string& name);
// The section that has `key` among its names; null if there is none.
const Section* find_section_with_key(const std::string& key);

// The reason for keys that `hasten tpu-config` reads or that need more than one machine.
inline constexpr const char* kTpuReason = "only used on TPUs";
// The reason for refusing what Accelerate does over ssh for all machines of a pod at once.
inline constexpr const char* kOverSshReason =
    "start hasten launch on each machine, for example with hasten tpu-config";
// The reason for ignoring tpu_use_sudo.
inline constexpr const char* kSudoReason = "processes run as the user who starts them";
// True for the values of distributed_type that mean TPUs: XLA, and TPU in Accelerate's first files.
bool is_tpu_type(const std::string& distributed_type);

const std::vector<KeyGroup>& key_groups();
// Null if the key is in no group.
const KeyGroup* find_group(const std::string& key);

// Returns all keys of a file that are not options.
std::vector<std::string> accelerate_keys();

}  // namespace hasten::config
