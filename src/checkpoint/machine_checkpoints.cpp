#include "checkpoint/machine_checkpoints.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/file_calls.h"
#include "base/hexadecimal.h"
#include "base/process_state.h"
#include "checkpoint/damaged_checkpoint.h"
#include "checkpoint/kept_checkpoints.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/process/once.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;
using MachineJson = nlohmann::json;

std::string random_digits() {
  std::random_device random;
  std::array<unsigned char, 16> bytes;
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  return to_hex(bytes);
}

// Returns the identifiers of the saves that killed processes have not finished in this folder.
std::set<std::string> unfinished_saves_in(const fs::path& folder) {
  std::set<std::string> ids;
  std::error_code error;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::end(it);
       it.increment(error)) {
    std::error_code missing;
    if (is_partial(it->path()) && fs::exists(it->path() / kMachineFile, missing))
      ids.insert(id_in_machine_file(it->path()));
  }
  ids.erase("");
  return ids;
}

// A step and its save.
using Save = std::pair<std::int64_t, std::string>;

// The checkpoints in a folder: those with their names, and those that newer ones have replaced
// before every machine had them.
struct OwnCheckpoints {
  std::vector<fs::path> named = {};
  std::vector<KeptCheckpoint> kept = {};
};

// Returns the kept checkpoints that may be needed. A kept checkpoint does not count if nothing has
// its name any more, because somebody has deleted or renamed the checkpoint of this name.
std::vector<KeptCheckpoint> usable_kept_checkpoints(
    const fs::path& folder, const std::function<bool(const std::string& target)>& is_target) {
  std::vector<KeptCheckpoint> kept = kept_checkpoints(folder, is_target);
  std::erase_if(kept, [](const KeptCheckpoint& each) { return !path_exists(each.target); });
  return kept;
}

// Deletes the kept checkpoints of processes that have ended. Call it when every machine has the
// same save under its name.
void remove_unneeded_kept_checkpoints(
    const fs::path& folder, const std::function<bool(const std::string& target)>& is_target) {
  remove_kept_checkpoints(folder, is_target,
                          [](const KeptCheckpoint& kept) { return is_abandoned(kept.path); });
}

// The checkpoints on the machine of a process that writes.
struct Machine {
  std::int64_t rank = 0;
  std::string host, folder;
  std::set<Save> named;              // those with their names
  std::set<Save> saves;              // these and the kept ones
  std::set<std::string> unfinished;  // identifiers of saves
};

MachineJson json_of_machine(std::int64_t rank, const fs::path& folder, const OwnCheckpoints& own,
                            const std::string& prefix) {
  MachineJson named = MachineJson::array();
  for (const fs::path& checkpoint : own.named) {
    const std::string save = save_of(checkpoint);
    if (!save.empty()) named.push_back({step_of_checkpoint(checkpoint, prefix), save});
  }
  MachineJson saves = named;
  for (const KeptCheckpoint& kept : own.kept) {
    const std::string save = save_of(kept.path);
    if (!save.empty()) saves.push_back({step_of_checkpoint(kept.target, prefix), save});
  }
  return {{"rank", rank},   {"host", host_name()}, {"folder", folder.string()},
          {"named", named}, {"saves", saves},      {"unfinished", unfinished_saves_in(folder)}};
}

// Returns all machines in the order of their ranks. A collective.
std::vector<Machine> machines_of(const Group& group, bool writes, const fs::path& folder,
                                 const OwnCheckpoints& checkpoints, const std::string& prefix) {
  std::string own;
  once(group, writes, [&] {
    own = json_of_machine(group.rank(), folder, checkpoints, prefix)
              .dump(-1, ' ', false, MachineJson::error_handler_t::replace);
  });
  std::vector<Machine> machines;
  for (const std::string& text : group.gather_object(own)) {
    if (text.empty()) continue;
    const MachineJson json = MachineJson::parse(text);
    machines.push_back({.rank = json.at("rank").get<std::int64_t>(),
                        .host = json.at("host").get<std::string>(),
                        .folder = json.at("folder").get<std::string>(),
                        .named = json.at("named").get<std::set<Save>>(),
                        .saves = json.at("saves").get<std::set<Save>>(),
                        .unfinished = json.at("unfinished").get<std::set<std::string>>()});
  }
  return machines;
}

std::string describe_machine(const std::vector<Machine>& machines, std::size_t number) {
  const Machine& machine = machines[number];
  return str("machine ", number, " (rank ", machine.rank, ", ", machine.host, ", ", machine.folder,
             ")");
}

std::string steps_of(const Machine& machine) {
  std::vector<std::string> steps;
  for (const Save& save : machine.saves) {
    const std::string step = save.first < 0 ? "another one" : str(save.first);
    if (steps.empty() || steps.back() != step) steps.push_back(step);
  }
  return steps.empty() ? "none" : join(steps, ", ");
}

bool is_on_every_machine(const std::vector<Machine>& machines, const Save& save) {
  return std::all_of(machines.begin(), machines.end(),
                     [&](const Machine& machine) { return machine.saves.contains(save); });
}

// Returns the saves that every machine has, the best one first: that of the highest step, and among
// those of one step the one that has its name on the most machines.
std::vector<Save> common_saves(const std::vector<Machine>& machines) {
  std::vector<Save> common;
  for (const Save& save : machines.front().saves) {
    if (is_on_every_machine(machines, save)) common.push_back(save);
  }
  const auto rank_of = [&](const Save& save) {
    const auto names = std::count_if(machines.begin(), machines.end(), [&](const Machine& machine) {
      return machine.named.contains(save);
    });
    return std::tuple(save.first, names, save.second);
  };
  std::sort(common.begin(), common.end(),
            [&](const Save& a, const Save& b) { return rank_of(a) > rank_of(b); });
  return common;
}

// Returns the save that only some machines have finished, if there is no other save. The other
// machines have an unfinished copy of it: without one, a machine may have lost its disk.
std::optional<Save> interrupted_first_save(const std::vector<Machine>& machines) {
  std::set<Save> all;
  for (const Machine& machine : machines) all.insert(machine.saves.begin(), machine.saves.end());
  if (all.size() != 1) return std::nullopt;
  const Save& only = *all.begin();
  bool has_every_machine = true;
  for (const Machine& machine : machines) {
    if (machine.saves.contains(only)) continue;
    if (!machine.unfinished.contains(only.second)) return std::nullopt;
    has_every_machine = false;
  }
  return has_every_machine ? std::nullopt : std::optional(only);
}

[[noreturn]] void throw_missing_on_machine(const std::vector<Machine>& machines) {
  std::vector<std::string> without, found;
  for (std::size_t i = 0; i < machines.size(); ++i) {
    if (machines[i].saves.empty()) without.push_back(describe_machine(machines, i));
    found.push_back(str(describe_machine(machines, i), ": ", steps_of(machines[i])));
  }
  throw DataError("checkpoint.missing-on-machine",
                  {.what = "resuming with save_on_each_node",
                   .got = without.empty() ? "no common checkpoint; " + join(found, "; ")
                                          : "no checkpoint on " + join(without, ", "),
                   .expected = "a save of which every machine has a complete checkpoint",
                   .hint = "copy a checkpoint of another machine into the folder, or start again "
                           "with empty folders"});
}

// Reports a save that is newer than the used one and that a machine lacks.
void report_newer(const std::vector<Machine>& machines, const Save& used,
                  const std::function<void(const std::string&)>& report) {
  const auto& [step, id] = used;
  for (std::size_t i = 0; i < machines.size(); ++i) {
    if (machines[i].named.empty()) continue;
    const Save& newest = *machines[i].named.rbegin();
    const bool is_of_same_step = newest.first == step && newest.second != id;
    const bool is_lacking = is_of_same_step && !is_on_every_machine(machines, newest);
    if (newest.first <= step && !is_lacking) continue;
    report(str("the checkpoint of step ", newest.first, " of ", describe_machine(machines, i),
               " is not used: not every machine has it. The run continues from ",
               is_of_same_step ? "an earlier save of step " : "step ", step));
    return;
  }
}

// Gives the save its name on every machine, and verifies it. Renames damaged checkpoints, and
// reports them. A collective.
bool is_intact_everywhere(const Group& group, bool writes, const fs::path& folder,
                          const std::string& save,
                          const std::function<void(const std::string&)>& report) {
  std::string damage;
  once(group, writes, [&] {
    if (!give_name_to_save(folder, save)) {
      damage = str("the checkpoint ", folder.string(),
                   " is not used: another process has deleted or replaced it meanwhile");
      return;
    }
    try {
      verify_checkpoint(folder);
    } catch (const Error& error) {
      if (!is_damage_error(error)) rethrow_unused_checkpoint(folder, error);
      damage = rename_damaged_checkpoint(folder, error);
    }
  });
  bool is_intact = true;
  for (const std::string& of_rank : group.gather_object(damage)) {
    if (of_rank.empty()) continue;
    report(of_rank);
    is_intact = false;
  }
  return is_intact;
}

}  // namespace

std::string path_of_writer(const Group& group, const std::string& own) {
  return path_of_writer(group, own, host_name());
}

std::string path_of_writer(const Group& group, const std::string& own, const std::string& host) {
  const std::vector<std::string> of_ranks = group.gather_object(own),
                                 hosts = group.gather_object(host);
  auto nearest = static_cast<std::size_t>(group.rank());
  while (nearest > 0 && of_ranks[nearest].empty()) --nearest;
  if (hosts[nearest] == host) return of_ranks[nearest];
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    if (!of_ranks[rank].empty() && hosts[rank] == host) return of_ranks[rank];
  }
  return of_ranks[nearest];
}

void require_separate_folders(const Group& group, bool writes, const fs::path& folder) {
  const std::vector<std::string> writers = group.gather_object(writes ? "1" : "");
  const std::string digits = broadcast_from_main(group, random_digits);
  const auto mark_of = [&](std::size_t rank) {
    return folder / str(".hasten-machine-", digits, '-', rank);
  };
  const auto own = static_cast<std::size_t>(group.rank());
  once(group, writes, [&] {
    make_directories(folder);
    write_file_atomically(mark_of(own), "");
  });
  std::error_code error;
  std::string seen;  // the rank of another process that writes here
  for (std::size_t rank = 0; writes && rank < own && seen.empty(); ++rank) {
    if (!writers[rank].empty() && fs::exists(mark_of(rank), error)) seen = str(rank);
  }
  const std::vector<std::string> of_ranks = group.gather_object(seen);
  if (writes) fs::remove(mark_of(own), error);
  const auto sharing = std::find_if(of_ranks.begin(), of_ranks.end(),
                                    [](const std::string& other) { return !other.empty(); });
  if (sharing == of_ranks.end()) return;
  throw ConfigError(
      "checkpoint.shared-folder",
      {.what = "save_on_each_node, " + folder.string(),
       .got = str("a folder that ranks ", *sharing, " and ", sharing - of_ranks.begin(), " share"),
       .expected = "a folder of its own for each machine",
       .hint = "leave save_on_each_node off: with a shared folder the main process "
               "writes for all machines"});
}

std::string new_save_id(const Group& group) { return broadcast_from_main(group, random_digits); }

void write_machine_file(const fs::path& checkpoint, const std::string& save_id) {
  write_file_atomically(checkpoint / kMachineFile, MachineJson{{"save", save_id}}.dump(2) + "\n");
}

void abandon_interrupted_first_save(const Group& group, bool writes, const fs::path& output_dir,
                                    const std::string& prefix,
                                    const std::function<void(const std::string&)>& report) {
  std::vector<fs::path> own;
  once(group, writes, [&] { own = checkpoints(output_dir, prefix); });
  const auto save =
      interrupted_first_save(machines_of(group, writes, output_dir, {.named = own}, prefix));
  if (!save) return;
  report(str("the checkpoint of step ", save->first,
             " is not used: the run was interrupted during its first save, and not every machine "
             "has it"));
  once(group, writes, [&] { abandon_checkpoints_after(output_dir, save->first - 1, prefix); });
}

fs::path newest_common_checkpoint(const Group& group, bool writes, const fs::path& output_dir,
                                  const std::string& prefix,
                                  const std::function<void(const std::string&)>& report,
                                  const std::function<bool(const fs::path&)>& accepts) {
  const auto is_checkpoint = [&](const std::string& name) {
    return step_of_checkpoint(name, prefix) >= 0;
  };
  OwnCheckpoints own;
  once(group, writes, [&] {
    remove_unfinished_saves(output_dir, prefix);
    own = {.named = checkpoints(output_dir, prefix),
           .kept = usable_kept_checkpoints(output_dir, is_checkpoint)};
    if (!accepts) return;
    std::erase_if(own.named, [&](const fs::path& each) { return !accepts(each); });
    std::erase_if(own.kept, [&](const KeptCheckpoint& each) { return !accepts(each.path); });
  });
  const std::vector<Machine> machines = machines_of(group, writes, output_dir, own, prefix);
  const auto has_none = [](const Machine& machine) { return machine.saves.empty(); };
  if (std::all_of(machines.begin(), machines.end(), has_none)) return {};
  for (const Save& save : common_saves(machines)) {
    const fs::path folder = output_dir / str(prefix, save.first);
    if (!is_intact_everywhere(group, writes, folder, save.second, report)) continue;
    once(group, writes, [&] { remove_unneeded_kept_checkpoints(output_dir, is_checkpoint); });
    report_newer(machines, save, report);
    return path_of_writer(group, writes ? folder.string() : "");
  }
  throw_missing_on_machine(machines);
}

fs::path common_checkpoint(const Group& group, bool writes, const fs::path& given) {
  const fs::path folder = without_last_slash(given), parent = parent_folder(folder);
  const auto is_target = [&](const std::string& name) { return name == folder.filename(); };
  OwnCheckpoints own;
  once(group, writes, [&] {
    remove_unfinished_saves_of(folder);
    own = {.named = {folder}, .kept = usable_kept_checkpoints(parent, is_target)};
  });
  const std::vector<Machine> machines =
      machines_of(group, writes, folder, own, folder.filename().string());
  const std::vector<Save> common = common_saves(machines);
  if (common.empty()) throw_missing_on_machine(machines);
  once(group, writes, [&] {
    if (!give_name_to_save(folder, common.front().second)) throw_missing_on_machine(machines);
    verify_checkpoint(folder);
  });
  once(group, writes, [&] { remove_unneeded_kept_checkpoints(parent, is_target); });
  return path_of_writer(group, writes ? folder.string() : "");
}

}  // namespace hasten
