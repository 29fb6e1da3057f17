// The folders of a run's checkpoints: which one is the newest, which are abandoned, and which are
// deleted.
#include "hasten/checkpoint/checkpoint_folders.h"

#include <doctest/doctest.h>
#include <sys/fsuid.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/manifest.h"
#include "unit/code_of.h"
#include "unit/data/error_of.h"
#include "unit/interrupted_replacement.h"

namespace checkpoint_checkpoint_folders_test {

using namespace hasten;
namespace fs = std::filesystem;

namespace {

struct Checkpoints {
  explicit Checkpoints(const std::vector<int>& steps) {
    for (const int step : steps) write(step, str("first run, step ", step));
  }
  void write(int step, const std::string& text) const {
    const fs::path one = folder.path() / str("checkpoint-", step);
    fs::create_directories(one);
    write_file_atomically(one / "trainer_state.json", text);
    write_manifest(one);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder.path()))
      found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }
  TemporaryDirectory folder;
};

using FolderNames = std::vector<std::string>;

FolderNames names_in_order(const std::vector<fs::path>& folders) {
  FolderNames names;
  for (const fs::path& each : folders) names.push_back(each.filename().string());
  return names;
}

}  // namespace

TEST_CASE("checkpoints: they are listed by step, without partial and foreign folders") {
  const TemporaryDirectory folder;
  for (const char* name :
       {"checkpoint-10", "checkpoint-9", "checkpoint-200", "checkpoint-x",
        ".checkpoint-300.partial-77", "checkpoint--1", "logs", "abandoned-checkpoint-400"}) {
    fs::create_directory(folder.path() / name);
  }
  CHECK(names_in_order(checkpoints(folder.path())) ==
        FolderNames{"checkpoint-9", "checkpoint-10", "checkpoint-200"});
  CHECK(last_checkpoint(folder.path()).empty());  // none is complete
  for (const char* name : {"checkpoint-9", "checkpoint-10"}) {
    write_file_atomically(folder.path() / name / "trainer_state.json", "{}");
    write_manifest(folder.path() / name);
  }
  CHECK(last_checkpoint(folder.path()).filename() == "checkpoint-10");
  CHECK(last_checkpoint(folder.path() / "nowhere").empty());
}

TEST_CASE("checkpoints: rotation deletes the oldest and never the one to keep") {
  const Checkpoints five({1, 2, 3, 4, 5});
  const fs::path best = five.folder.path() / "checkpoint-1";
  rotate_checkpoints(five.folder.path(), {.limit = 2, .keep = best});
  CHECK(five.names() == FolderNames{"checkpoint-1", "checkpoint-5"});
  rotate_checkpoints(five.folder.path(), {.limit = 1, .keep = best});
  CHECK(five.names() == FolderNames{"checkpoint-1", "checkpoint-5"});
}

TEST_CASE("checkpoints: every K-th one stays, besides the last ones and the best one") {
  const Checkpoints run({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const fs::path& folder = run.folder.path();
  rotate_checkpoints(folder, {.keep_every = 4});  // without a limit, all remain
  REQUIRE(run.names().size() == 11);
  rotate_checkpoints(folder, {.limit = 3, .keep = folder / "checkpoint-2", .keep_every = 4});
  CHECK(names_in_order(checkpoints(folder)) == FolderNames{"checkpoint-2", "checkpoint-4",
                                                           "checkpoint-8", "checkpoint-10",
                                                           "checkpoint-11"});
  // The best checkpoint may be a K-th one itself. It then does not replace any other checkpoint.
  rotate_checkpoints(folder, {.limit = 2, .keep = folder / "checkpoint-4", .keep_every = 4});
  CHECK(names_in_order(checkpoints(folder)) ==
        FolderNames{"checkpoint-4", "checkpoint-8", "checkpoint-10", "checkpoint-11"});
}

TEST_CASE("checkpoints: an abandoned one is deleted, whatever its step is") {
  const Checkpoints run({4, 8});
  abandon_checkpoints_after(run.folder.path(), 4);
  run.write(6, "second run");
  rotate_checkpoints(run.folder.path(), {.limit = 1, .keep_every = 4});
  CHECK(run.names() == FolderNames{"checkpoint-4", "checkpoint-6"});
}

TEST_CASE("checkpoints: those of later steps are abandoned, and rotation deletes them first") {
  const Checkpoints run({10, 20, 90, 100});
  const fs::path& folder = run.folder.path();
  abandon_checkpoints_after(folder, 20);
  CHECK(names_in_order(checkpoints(folder)) == FolderNames{"checkpoint-10", "checkpoint-20"});
  CHECK(names_in_order(abandoned_checkpoints(folder)) ==
        FolderNames{"abandoned-checkpoint-90", "abandoned-checkpoint-100"});
  CHECK(last_checkpoint(folder).filename() == "checkpoint-20");
  run.write(30, "second run");
  rotate_checkpoints(folder, {.limit = 3});
  CHECK(run.names() == FolderNames{"checkpoint-10", "checkpoint-20", "checkpoint-30"});
}

TEST_CASE("checkpoints: abandoning the same step twice keeps both") {
  const Checkpoints run({10, 20});
  abandon_checkpoints_after(run.folder.path(), 10);
  run.write(20, "second run");
  abandon_checkpoints_after(run.folder.path(), 10);
  CHECK(run.names() ==
        FolderNames{"abandoned-checkpoint-20", "abandoned-checkpoint-20.2", "checkpoint-10"});
  CHECK(read_file(run.folder.path() / "abandoned-checkpoint-20.2" / "trainer_state.json") ==
        "second run");
}

TEST_CASE("checkpoints: abandoning one works beside a link that cannot be followed") {
  const Checkpoints run({10, 20});
  fs::create_symlink("abandoned-checkpoint-20", run.folder.path() / "abandoned-checkpoint-20");
  abandon_checkpoints_after(run.folder.path(), 10);
  CHECK(run.names() ==
        FolderNames{"abandoned-checkpoint-20", "abandoned-checkpoint-20.2", "checkpoint-10"});
}

TEST_CASE("checkpoints: unfinished saves of a killed process are removed, other files are not") {
  const Checkpoints run({10});
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const StagedDirectory checkpoint(run.folder.path() / "checkpoint-20"),
        model(run.folder.path() / "model"), other(run.folder.path() / "mine");
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(run.names().size() == 4);
  const StagedDirectory alive(run.folder.path() / "checkpoint-30");
  remove_unfinished_saves(run.folder.path());
  CHECK(run.names().size() == 3);
  CHECK(fs::exists(alive.path()));
  CHECK(fs::exists(run.folder.path() / "checkpoint-10"));
}

TEST_CASE("checkpoints: a save appears with its manifest, after which the oldest are deleted") {
  const Checkpoints run({10, 20});
  {
    CheckpointSave given_up(run.folder.path() / "checkpoint-30");
    write_file_atomically(given_up.path() / "trainer_state.json", "half");
  }
  CHECK(run.names() == FolderNames{"checkpoint-10", "checkpoint-20"});
  CheckpointSave save(run.folder.path() / "checkpoint-30");
  write_file_atomically(save.path() / "trainer_state.json", "whole");
  CHECK(last_checkpoint(run.folder.path()).filename() == "checkpoint-20");
  save.commit({.limit = 2, .keep = run.folder.path() / "checkpoint-10"});
  CHECK(run.names() == FolderNames{"checkpoint-10", "checkpoint-30"});
  verify_checkpoint(run.folder.path() / "checkpoint-30");
  CheckpointSave again(run.folder.path() / "checkpoint-30");
  write_file_atomically(again.path() / "trainer_state.json", "again");
  again.commit();
  CHECK(read_file(run.folder.path() / "checkpoint-30" / "trainer_state.json") == "again");
  verify_checkpoint(run.folder.path() / "checkpoint-30");
}

TEST_CASE("checkpoints: deleting them does not follow symbolic links") {
  const TemporaryDirectory outside;
  write_file_atomically(outside.path() / "thesis.tex", "text");
  const Checkpoints run({1, 2, 3});
  fs::create_directory_symlink(outside.path(), run.folder.path() / "checkpoint-1" / "more");
  fs::create_symlink(outside.path() / "thesis.tex", run.folder.path() / "checkpoint-2" / "file");
  fs::create_directory_symlink(outside.path(), run.folder.path() / "checkpoint-0");
  rotate_checkpoints(run.folder.path(), {.limit = 1});
  CHECK(run.names() == FolderNames{"checkpoint-3"});
  CHECK(read_file(outside.path() / "thesis.tex") == "text");
}

TEST_CASE("checkpoints: a folder with other files is never replaced") {
  const TemporaryDirectory folder;
  fs::create_directory(folder.path() / "work");
  write_file_atomically(folder.path() / "work" / "thesis.tex", "text");
  CHECK(code_of([&] { CheckpointSave(folder.path() / "work"); }) == "checkpoint.not-a-checkpoint");
  CHECK(code_of([&] { CheckpointSave(folder.path() / "work" / ""); }) ==
        "checkpoint.not-a-checkpoint");
  CHECK(read_file(folder.path() / "work" / "thesis.tex") == "text");
}

TEST_CASE("checkpoints: damaged ones are renamed and reported, and the one before is used") {
  const Checkpoints run({10, 20, 30, 40});
  const fs::path& folder = run.folder.path();
  write_file_atomically(folder / "checkpoint-40" / "trainer_state.json", "changed");
  fs::remove(folder / "checkpoint-30" / "trainer_state.json");
  CHECK(last_checkpoint(folder).filename() == "checkpoint-20");
  CHECK(run.names().size() == 4);
  CHECK(damaged_checkpoints(folder).empty());
  std::vector<std::string> reports;
  const auto report = [&](const std::string& text) { reports.push_back(text); };
  CHECK(recover_last_checkpoint(folder, report).filename() == "checkpoint-20");
  CHECK(run.names() == FolderNames{"checkpoint-10", "checkpoint-20", "checkpoint-30.damaged",
                                   "checkpoint-40.damaged"});
  CHECK(names_in_order(damaged_checkpoints(folder)) ==
        FolderNames{"checkpoint-30.damaged", "checkpoint-40.damaged"});
  REQUIRE(reports.size() == 2);
  CHECK(reports[0].find("checkpoint-40/trainer_state.json: got 7 bytes, expected 18 bytes") !=
        std::string::npos);
  CHECK(reports[1].find("checkpoint-30/trainer_state.json: got no such file") != std::string::npos);
  CHECK(reports[1].find("the checkpoint " + (folder / "checkpoint-30").string() +
                        " cannot be used and has been renamed to checkpoint-30.damaged; ") == 0);
  run.write(40, "second run");
  fs::remove(folder / "checkpoint-40" / kManifestFile);
  recover_last_checkpoint(folder, report);
  CHECK(fs::exists(folder / "checkpoint-40.damaged.2"));
  CHECK(reports.size() == 3);
}

TEST_CASE("checkpoints: one that another process deletes meanwhile is not damaged") {
  const Checkpoints run({5});
  const fs::path& folder = run.folder.path();
  std::vector<std::string> reports;
  bool has_saved = false;
  // A job saves the next checkpoint, and deletes this one, after the folder has been listed.
  const auto accept = [&](const fs::path&) {
    if (std::exchange(has_saved, true)) return true;
    CheckpointSave next(folder / "checkpoint-6");
    write_file_atomically(next.path() / "trainer_state.json", "step 6");
    next.commit({.limit = 1});
    return true;
  };
  const auto report = [&](const std::string& text) { reports.push_back(text); };
  CHECK(recover_last_checkpoint(folder, report, kCheckpointPrefix, accept) ==
        folder / "checkpoint-6");
  CHECK(reports.empty());
  CHECK(run.names() == FolderNames{"checkpoint-6"});
}

TEST_CASE("checkpoints: one whose replacement was interrupted is found at once on any machine") {
  const Checkpoints run({10, 20});
  const fs::path& folder = run.folder.path();
  const fs::path newest = folder / "checkpoint-20";
  interrupt_replacement(newest);
  CHECK(names_in_order(checkpoints(folder)) == FolderNames{"checkpoint-10", "checkpoint-20"});
  interrupt_replacement(newest);
  CHECK(last_checkpoint(folder) == newest);
  interrupt_replacement(newest);
  CHECK(recover_last_checkpoint(folder, [](const std::string&) {}) == newest);
  interrupt_replacement(newest);
  remove_unfinished_saves_of(newest / "");
  CHECK(fs::exists(newest));
  interrupt_replacement(newest);
  const CheckpointSave next(newest);
  CHECK(fs::exists(newest));
}

TEST_CASE("checkpoints: an old one does not appear again after its replacement was complete") {
  const Checkpoints run({10, 20});
  const fs::path& folder = run.folder.path();
  // The process was killed after it had given the new folder its name; then somebody deleted that.
  fs::rename(folder / "checkpoint-20", folder / str(".checkpoint-20", kReplaced, kElsewhere));
  CHECK(names_in_order(checkpoints(folder)) == FolderNames{"checkpoint-10"});
}

TEST_CASE("checkpoints: the one that a living process replaces is left to it") {
  const Checkpoints run({10, 20});
  const fs::path& folder = run.folder.path();
  interrupt_replacement(folder / "checkpoint-20", writer_tag());
  CHECK(names_in_order(checkpoints(folder)) == FolderNames{"checkpoint-10"});
}

TEST_CASE("checkpoints: a damaged one whose replacement was interrupted is reported") {
  const Checkpoints run({20});
  const fs::path newest = run.folder.path() / "checkpoint-20";
  write_file_atomically(newest / "trainer_state.json", "changed");
  interrupt_replacement(newest);
  std::vector<std::string> reports;
  const auto report = [&](const std::string& text) { reports.push_back(text); };
  CHECK(recover_last_checkpoint(run.folder.path(), report).empty());
  CHECK(reports.size() == 1);
  CHECK(damaged_checkpoints(run.folder.path()).size() == 1);
}

// While an object of this class exists, the process cannot open any file.
class OpenFilesBlocker {
 public:
  OpenFilesBlocker() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{.rlim_cur = 0, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~OpenFilesBlocker() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_CASE("checkpoints: a folder that cannot be listed is an error, not an empty list") {
  const Checkpoints run({10, 20});
  const fs::path& folder = run.folder.path();
  std::vector<std::string> codes;
  {
    const OpenFilesBlocker limit;
    codes = {code_of([&] { checkpoints(folder); }),
             code_of([&] { last_checkpoint(folder); }),
             code_of([&] { recover_last_checkpoint(folder, [](const std::string&) {}); }),
             code_of([&] { damaged_checkpoints(folder); }),
             code_of([&] { abandon_checkpoints_after(folder, 10); }),
             code_of([&] { rotate_checkpoints(folder, {.limit = 1}); })};
  }
  // rotate_checkpoints() does not throw, because the new checkpoint is already saved when it is
  // called.
  CHECK(codes ==
        std::vector<std::string>{"io.open", "io.open", "io.open", "io.open", "io.open", "none"});
  CHECK(run.names() == FolderNames{"checkpoint-10", "checkpoint-20"});
  CHECK(checkpoints(folder / "checkpoint-10" / "trainer_state.json").empty());
}

TEST_CASE("checkpoints: an error names the later checkpoint that must be moved away") {
  if (geteuid() != 0) return;  // only root can take the permissions of another user
  const Checkpoints run({10, 20});
  const fs::path& folder = run.folder.path();
  const std::string later = (folder / "checkpoint-20").string();
  // In such a folder, only the owner of a checkpoint may rename it.
  fs::permissions(folder, fs::perms::all | fs::perms::sticky_bit);
  ErrorText text;
  {
    constexpr uid_t kNobody = 65534;
    setfsuid(kNobody);
    try {
      abandon_checkpoints_after(folder, 10);
    } catch (const IoError& error) {
      text = error.text();
    }
    setfsuid(geteuid());
  }
  CHECK(text.what == "cannot rename " + later + " to abandoned-checkpoint-20");
  CHECK(text.got == "Operation not permitted");
  CHECK(contains(text.hint, "move or delete " + later));
  CHECK(run.names() == FolderNames{"checkpoint-10", "checkpoint-20"});
}

TEST_CASE("checkpoints: one whose file cannot be opened is not damaged") {
  const Checkpoints run({10, 20});
  const fs::path& folder = run.folder.path();
  const fs::path file = folder / "checkpoint-20" / "trainer_state.json";
  fs::permissions(folder, fs::perms::all);
  fs::permissions(file, fs::perms::none);
  std::string code;
  {
    // Root may open every file, so this thread takes the permissions of another user in this block.
    constexpr uid_t kNobody = 65534;
    setfsuid(kNobody);
    code = code_of([&] { recover_last_checkpoint(folder, [](const std::string&) {}); });
    setfsuid(geteuid());
  }
  CHECK(code == "io.open");
  CHECK(run.names() == FolderNames{"checkpoint-10", "checkpoint-20"});
  fs::permissions(file, fs::perms::owner_all);
  CHECK(last_checkpoint(folder).filename() == "checkpoint-20");
}

TEST_CASE("checkpoints: one whose folder may not be entered is not damaged") {
  const Checkpoints run({10, 20});
  const fs::path& folder = run.folder.path();
  fs::permissions(folder, fs::perms::all);
  fs::permissions(folder / "checkpoint-20", fs::perms::none);
  std::string code;
  {
    constexpr uid_t kNobody = 65534;
    setfsuid(kNobody);  // as above
    code = code_of([&] { recover_last_checkpoint(folder, [](const std::string&) {}); });
    setfsuid(geteuid());
  }
  CHECK(code == "io.open");
  CHECK(run.names() == FolderNames{"checkpoint-10", "checkpoint-20"});
  fs::permissions(folder / "checkpoint-20", fs::perms::owner_all);
  CHECK(last_checkpoint(folder).filename() == "checkpoint-20");
}

TEST_CASE("checkpoints: one that cannot be looked up is an error, not a missing one") {
  const Checkpoints run({10});
  const TemporaryDirectory locked;
  const fs::path& folder = run.folder.path();
  fs::create_directory(locked.path() / "checkpoint-20");
  fs::create_directory_symlink(locked.path() / "checkpoint-20", folder / "checkpoint-20");
  fs::create_symlink("nowhere", folder / "checkpoint-30");
  CHECK(names_in_order(checkpoints(folder)) == FolderNames{"checkpoint-10", "checkpoint-20"});
  fs::permissions(folder, fs::perms::all);
  fs::permissions(locked.path(), fs::perms::none);
  std::string code;
  {
    constexpr uid_t kNobody = 65534;
    setfsuid(kNobody);  // as above
    code = code_of([&] { checkpoints(folder); });
    setfsuid(geteuid());
  }
  CHECK(code == "io.open");
  fs::permissions(locked.path(), fs::perms::owner_all);
}

TEST_CASE("checkpoints: one whose file gives an error when it is read is not damaged") {
  const Checkpoints run({10});
  run.write(20, "");
  const fs::path& folder = run.folder.path();
  const fs::path file = folder / "checkpoint-20" / "trainer_state.json";
  // This file has the size 0, too, and a read at its start fails with EIO, as on a failing disk.
  fs::remove(file);
  fs::create_symlink("/proc/self/mem", file);
  std::string error, hint;
  try {
    recover_last_checkpoint(folder, [](const std::string&) {});
  } catch (const IoError& refused) {
    error = refused.code();
    hint = refused.hint();
  }
  CHECK(error == "io.read");
  CHECK_MESSAGE(hint.find("the checkpoint " + (folder / "checkpoint-20").string() +
                          " may be whole, so it keeps its name") != std::string::npos,
                hint);
  CHECK(run.names() == FolderNames{"checkpoint-10", "checkpoint-20"});
  fs::remove(file);
  write_file_atomically(file, "");
  CHECK(recover_last_checkpoint(folder, [](const std::string&) {}).filename() == "checkpoint-20");
}

TEST_CASE("checkpoints: rotation orders by number, not by time, and ignores other prefixes") {
  const Checkpoints run({100, 20, 3});  // written in this order
  fs::create_directory(run.folder.path() / "checkpoint_1");
  rotate_checkpoints(run.folder.path(), {.limit = 1});
  CHECK(run.names() == FolderNames{"checkpoint-100", "checkpoint_1"});
  CHECK(names_in_order(checkpoints(run.folder.path(), "checkpoint_")) ==
        FolderNames{"checkpoint_1"});
}

}  // namespace checkpoint_checkpoint_folders_test
