// Checkpoints of machines that each have their own folder. Four forks of this process act as two
// machines with two processes each.
#include "checkpoint/machine_checkpoints.h"

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/kept_checkpoints.h"
#include "hasten/accelerator.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/check_in_fork.h"
#include "unit/interrupted_replacement.h"
#include "unit/prepare/multiprocess_checks.h"

namespace checkpoint_machine_checkpoints_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
namespace fs = std::filesystem;

namespace {

const std::vector<std::string> kMachines = {"a", "b"};

void write_checkpoint(const fs::path& folder, int step, const std::string& save) {
  const fs::path checkpoint = folder / str("checkpoint-", step);
  fs::create_directories(checkpoint);
  write_file_atomically(checkpoint / "trainer_state.json", "{}");
  if (!save.empty()) write_machine_file(checkpoint, save);
  write_manifest(checkpoint);
}

// Gives a save its name on one machine, as a process does before the other machines have the save.
std::unique_ptr<CheckpointSave> publish(const fs::path& checkpoint, const std::string& save) {
  auto published = std::make_unique<CheckpointSave>(checkpoint);
  write_file_atomically(published->path() / "trainer_state.json", save);
  write_machine_file(published->path(), save);
  published->publish();
  return published;
}

// Publishes the save on these machines in a process that is gone afterwards, and so never deletes
// what it has kept.
void publish_and_end(const fs::path& all, const std::vector<std::string>& machines,
                     const std::string& checkpoint, const std::string& save) {
  REQUIRE(check_in_fork([&] {
    for (const std::string& machine : machines) publish(all / machine / checkpoint, save);
    return true;
  }));
}

void save_on_both(const fs::path& all, const std::string& checkpoint, const std::string& save) {
  for (const std::string& machine : kMachines)
    publish(all / machine / checkpoint, save)->rotate({});
}

std::vector<std::string> hidden_names(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().native().starts_with('.'))
      names.push_back(entry.path().filename().string());
  }
  return names;
}

// One of the two processes on one of the two machines.
struct MachineProcess {
  explicit MachineProcess(const fs::path& all)
      : group(accelerator.group()),
        writes(group.rank() % 2 == 0),
        folder(all / kMachines[static_cast<std::size_t>(group.rank() / 2)]) {}

  // Returns the folder below `all`, or the error.
  std::string newest() {
    try {
      const fs::path found =
          newest_common_checkpoint(group, writes, writes ? folder : fs::path(), "checkpoint-",
                                   [&](const std::string& text) { reports.push_back(text); });
      return found.empty() ? "none" : found.lexically_relative(folder.parent_path()).string();
    } catch (const Error& error) {
      return error.code() + ": " + error.what();
    }
  }
  std::string own(const std::string& checkpoint) const {
    return folder.filename().string() + "/" + checkpoint;
  }

  Accelerator accelerator{{.cpu = true}};
  Group group;
  bool writes;
  fs::path folder;
  std::vector<std::string> reports;
};

void on_two_machines(const fs::path& all, const std::function<void(MachineProcess&)>& run) {
  notebook_launcher(
      [&] {
        MachineProcess machine(all);
        run(machine);
      },
      {.num_processes = 4});
}

void require_newest(const fs::path& all, const std::string& checkpoint, std::size_t reports,
                    const std::string& report = "") {
  on_two_machines(all, [&](MachineProcess& machine) {
    const std::string found = machine.newest();
    require(found == machine.own(checkpoint), found);
    require(machine.reports.size() == reports, str(machine.reports.size(), " reports"));
    if (reports > 0)
      require(machine.reports[0].find(report) != std::string::npos, machine.reports[0]);
  });
}

}  // namespace

TEST_CASE("machine checkpoints: the newest save that all machines have is used") {
  const TemporaryDirectory all;
  on_two_machines(all.path(), [](MachineProcess& machine) {
    require(machine.newest() == "none", "a checkpoint was found");
    const std::string path = path_of_writer(
        machine.group, machine.writes ? machine.folder.filename().string() : std::string());
    require(path == machine.folder.filename(), path);
  });
  for (const std::string& machine : kMachines) {
    write_checkpoint(all.path() / machine, 10, "first");
    write_checkpoint(all.path() / machine, 20, "second");
  }
  require_newest(all.path(), "checkpoint-20", 0);
  // The job was killed after only one machine had committed its checkpoint.
  write_checkpoint(all.path() / "b", 30, "third");
  require_newest(all.path(), "checkpoint-20", 1, "checkpoint of step 30 of machine 1 (rank 2");
}

TEST_CASE("machine checkpoints: a job that was killed during its first save starts again") {
  const TemporaryDirectory all;
  const auto abandon = [&](std::size_t reports) {
    on_two_machines(all.path(), [&](MachineProcess& machine) {
      abandon_interrupted_first_save(
          machine.group, machine.writes, machine.writes ? machine.folder : fs::path(),
          "checkpoint-", [&](const std::string& text) { machine.reports.push_back(text); });
      require(machine.reports.size() == reports, str(machine.reports.size(), " reports"));
    });
  };
  const fs::path unfinished = all.path() / "b" / ".checkpoint-10.partial-1-1-host";
  write_checkpoint(all.path() / "a", 10, "first");
  fs::create_directories(unfinished);
  abandon(0);  // machine b may have lost its disk
  write_machine_file(unfinished, "another save");
  abandon(0);
  write_machine_file(unfinished, "first");
  write_checkpoint(all.path() / "b", 5, "zeroth");  // a newer checkpoint of one machine is reported
  abandon(0);
  fs::remove_all(all.path() / "b" / "checkpoint-5");
  abandon(1);
  CHECK(fs::exists(all.path() / "a" / "abandoned-checkpoint-10"));
  CHECK(checkpoints(all.path() / "a").empty());
  abandon(0);
  on_two_machines(all.path(), [](MachineProcess& machine) {
    require(machine.newest() == "none", "a checkpoint was found");
  });
}

TEST_CASE("machine checkpoints: the ranks of a machine need not be consecutive") {
  notebook_launcher(
      [] {
        const Accelerator accelerator({.cpu = true});
        const Group& group = accelerator.group();
        const std::string host = kMachines[static_cast<std::size_t>(group.rank() % 2)];
        const std::string own = group.rank() < 2 ? "folder of " + host : "";
        const std::string path = path_of_writer(group, own, host);
        require(path == "folder of " + host, path);
        // One process writes to a folder that all machines share.
        const std::string shared = path_of_writer(group, group.rank() == 0 ? "shared" : "", host);
        require(shared == "shared", shared);
      },
      {.num_processes = 4});
}

TEST_CASE("machine checkpoints: a damaged one is renamed on its machine, and no machine uses it") {
  const TemporaryDirectory all;
  for (const std::string& machine : kMachines) {
    write_checkpoint(all.path() / machine, 10, "first");
    write_checkpoint(all.path() / machine, 20, "second");
  }
  write_file_atomically(all.path() / "b" / "checkpoint-20" / "trainer_state.json", "changed");
  require_newest(all.path(), "checkpoint-10", 2, "checkpoint-20 cannot be used");
  CHECK(fs::exists(all.path() / "b" / "checkpoint-20.damaged"));
  CHECK(fs::exists(all.path() / "a" / "checkpoint-20"));
}

TEST_CASE("machine checkpoints: folders of one step from two saves are not one checkpoint") {
  const TemporaryDirectory all;
  for (const std::string& machine : kMachines) {
    write_checkpoint(all.path() / machine, 10,
                     "");  // copies of a checkpoint that was saved without machines
    write_checkpoint(all.path() / machine, 20, "save of " + machine);
  }
  require_newest(all.path(), "checkpoint-10", 1, "checkpoint of step 20 of machine 0");
  on_two_machines(all.path(), [](MachineProcess& machine) {
    const auto load = [&](const char* name) {
      try {
        return common_checkpoint(machine.group, machine.writes, machine.folder / name).string();
      } catch (const Error& error) {
        return error.code();
      }
    };
    require(load("checkpoint-10") == (machine.folder / "checkpoint-10").string(), "step 10");
    require(load("checkpoint-20") == "checkpoint.missing-on-machine", "step 20");
  });
}

TEST_CASE("machine checkpoints: one that is replaced stays until every machine has the new one") {
  const TemporaryDirectory all;
  const fs::path own = all.path() / "a" / "checkpoint-10",
                 other = all.path() / "b" / own.filename();
  save_on_both(all.path(), "checkpoint-10", "first");
  CHECK(hidden_names(own.parent_path()).empty());
  // The job was killed after only one machine had replaced its checkpoint.
  publish_and_end(all.path(), {"a"}, "checkpoint-10", "second");
  CHECK(id_in_machine_file(own) == "second");
  CHECK(hidden_names(own.parent_path()).size() == 1);
  require_newest(all.path(), "checkpoint-10", 1, "the checkpoint of step 10 of machine 0 (rank 0");
  CHECK(read_file(own / "trainer_state.json") == "first");
  CHECK(id_in_machine_file(other) == "first");
  CHECK(hidden_names(own.parent_path()).empty());
  // The job was killed before any machine deleted the old one.
  publish_and_end(all.path(), kMachines, "checkpoint-10", "third");
  require_newest(all.path(), "checkpoint-10", 0);
  for (const fs::path& each : {own, other}) {
    CHECK(id_in_machine_file(each) == "third");
    CHECK(hidden_names(each.parent_path()).empty());
  }
}

TEST_CASE("machine checkpoints: a folder of any name that one machine has replaced is loaded") {
  const TemporaryDirectory all;
  save_on_both(all.path(), "state", "first");
  publish_and_end(all.path(), {"b"}, "state", "second");
  on_two_machines(all.path(), [](MachineProcess& machine) {
    const fs::path found =
        common_checkpoint(machine.group, machine.writes, machine.folder / "state" / "");
    require(found == machine.folder / "state", found.string());
    require(id_in_machine_file(found) == "first", id_in_machine_file(found));
  });
  CHECK(hidden_names(all.path() / "b").empty());
}

TEST_CASE("machine checkpoints: a program that loads while machines save loses no checkpoint") {
  const TemporaryDirectory all;
  const fs::path own = all.path() / "a" / "checkpoint-10",
                 other = all.path() / "b" / own.filename();
  save_on_both(all.path(), "checkpoint-10", "first");
  const auto job = publish(own, "second");
  require_newest(all.path(), "checkpoint-10", 1, "an earlier save of step 10");
  CHECK(id_in_machine_file(own) == "first");
  CHECK(hidden_names(own.parent_path()).size() == 1);
  publish(other, "second")->rotate({});
  job->rotate({});
  for (const fs::path& each : {own, other}) {
    CHECK(id_in_machine_file(each) == "second");
    verify_checkpoint(each);
    CHECK(hidden_names(each.parent_path()).empty());
  }
}

TEST_CASE("machine checkpoints: the old one is used if the new one of the same step is damaged") {
  const TemporaryDirectory all;
  save_on_both(all.path(), "checkpoint-10", "first");
  publish_and_end(all.path(), kMachines, "checkpoint-10", "second");
  write_file_atomically(all.path() / "b" / "checkpoint-10" / "trainer_state.json", "changed");
  require_newest(all.path(), "checkpoint-10", 1, "checkpoint-10 cannot be used");
  CHECK(fs::exists(all.path() / "b" / "checkpoint-10.damaged"));
  for (const std::string& machine : kMachines)
    CHECK(id_in_machine_file(all.path() / machine / "checkpoint-10") == "first");
}

TEST_CASE("machine checkpoints: one that a file system without a swap has moved aside is kept") {
  const TemporaryDirectory all;
  const fs::path folder = all.path() / "a";
  for (const std::string& machine : kMachines) write_checkpoint(all.path() / machine, 10, "first");
  // The process was killed after it had given the new folder its name.
  fs::rename(folder / "checkpoint-10", folder / str(".checkpoint-10", kReplaced, kElsewhere));
  write_checkpoint(folder, 10, "second");
  require_newest(all.path(), "checkpoint-10", 1, "an earlier save of step 10");
  CHECK(id_in_machine_file(folder / "checkpoint-10") == "first");
  // Nobody knows whether the process on another machine has ended, so the next save deletes this.
  CHECK(hidden_names(folder) ==
        std::vector<std::string>{str(".checkpoint-10.kept-1", kPartial, kElsewhere)});
  save_on_both(all.path(), "checkpoint-20", "third");
  CHECK(hidden_names(folder).empty());
}

TEST_CASE("machine checkpoints: a kept one does not appear again after the new one was deleted") {
  const TemporaryDirectory all;
  save_on_both(all.path(), "checkpoint-10", "first");
  publish_and_end(all.path(), kMachines, "checkpoint-10", "second");
  for (const std::string& machine : kMachines)
    fs::remove_all(all.path() / machine / "checkpoint-10");
  on_two_machines(all.path(), [](MachineProcess& machine) {
    require(machine.newest() == "none", "a checkpoint was found");
  });
  for (const std::string& machine : kMachines) CHECK(hidden_names(all.path() / machine).empty());
}

TEST_CASE("machine checkpoints: a machine without checkpoints is named") {
  const TemporaryDirectory all;
  write_checkpoint(all.path() / "a", 10, "first");
  on_two_machines(all.path(), [](MachineProcess& machine) {
    const std::string error = machine.newest();
    require(error.find("checkpoint.missing-on-machine") == 0 &&
                error.find("no checkpoint on machine 1 (rank 2, ") != std::string::npos &&
                error.find("/b)") != std::string::npos,
            error);
  });
  write_checkpoint(all.path() / "b", 20, "second");
  on_two_machines(all.path(), [](MachineProcess& machine) {
    const std::string error = machine.newest();
    require(error.find("/a): 10; machine 1") != std::string::npos &&
                error.find("/b): 20") != std::string::npos,
            error);
  });
}

TEST_CASE("machine checkpoints: all processes throw if one machine cannot read its folder") {
  const TemporaryDirectory all;
  write_checkpoint(all.path() / "a", 10, "first");
  // A link to itself, which root cannot read either.
  fs::create_directory_symlink(all.path() / "b", all.path() / "b");
  on_two_machines(all.path(), [](MachineProcess& machine) {
    const std::string error = machine.newest();
    require(error.starts_with("io.open"), error);
  });
}

TEST_CASE("machine checkpoints: one whose manifest cannot be looked up is an error") {
  const TemporaryDirectory all;
  for (const std::string& machine : kMachines) {
    write_checkpoint(all.path() / machine, 10, "first");
    write_checkpoint(all.path() / machine, 20, "second");
  }
  // A link to itself, which root cannot follow either.
  const fs::path manifest = all.path() / "b" / "checkpoint-20" / kManifestFile;
  fs::remove(manifest);
  fs::create_symlink(manifest, manifest);
  on_two_machines(all.path(), [](MachineProcess& machine) {
    const std::string error = machine.newest();
    require(error.starts_with("io.open"), error);
  });
}

TEST_CASE("machine checkpoints: a folder that two machines share is refused") {
  const TemporaryDirectory all;
  on_two_machines(all.path(), [&](MachineProcess& machine) {
    require_separate_folders(machine.group, machine.writes, machine.folder);
    try {
      require_separate_folders(machine.group, machine.writes, all.path());
      require(false, "it was accepted");
    } catch (const Error& error) {
      require(error.code() == "checkpoint.shared-folder", error.what());
    }
  });
  // Rank 0 has its own folder, and ranks 1 and 2 share one.
  notebook_launcher(
      [&] {
        const Accelerator accelerator({.cpu = true});
        const Group& group = accelerator.group();
        try {
          require_separate_folders(group, true, all.path() / (group.rank() == 0 ? "a" : "b"));
          require(false, "it was accepted");
        } catch (const Error& error) {
          require(std::string(error.what()).find("ranks 1 and 2 share") != std::string::npos,
                  error.what());
        }
      },
      {.num_processes = 3});
  CHECK(checkpoints(all.path()).empty());
  for (const auto& entry : fs::recursive_directory_iterator(all.path()))
    CHECK(entry.is_directory());
}

}  // namespace checkpoint_machine_checkpoints_test
