#include "hasten/base/files.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include "base/environment_variable.h"
#include "base/file_calls.h"
#include "hasten/base/error.h"
#include "unit/scoped_environment.h"

namespace base_files_test {

using namespace hasten;
namespace fs = std::filesystem;

namespace {

std::size_t count_entries(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

template <class Call>
std::string code_of(Call&& call) {
  try {
    call();
  } catch (const IoError& error) {
    return error.code();
  }
  return "none";
}

// Forks a process that stages `target` with a file in it and is killed before it commits.
void stage_in_killed_process(const fs::path& target) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    StagedDirectory staged(target);
    std::ofstream(staged.path() / "weights") << "half";
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
}

fs::path only_entry(const fs::path& folder) {
  REQUIRE(count_entries(folder) == 1);
  return fs::directory_iterator(folder)->path();
}

void set_age(const fs::path& path, std::chrono::minutes age) {
  const auto time = fs::file_time_type::clock::now() - age;
  for (const auto& entry : fs::recursive_directory_iterator(path))
    fs::last_write_time(entry.path(), time);
  fs::last_write_time(path, time);
}

}  // namespace

TEST_CASE("files: an atomic write reads back, and no temporary file remains") {
  TemporaryDirectory scratch;
  const std::string bytes("a\0b\n\xff", 5);
  write_file_atomically(scratch.path() / "x.bin", bytes);
  CHECK(read_file(scratch.path() / "x.bin") == bytes);
  write_file_atomically(scratch.path() / "x.bin", "");
  CHECK(read_file(scratch.path() / "x.bin").empty());
  CHECK(count_entries(scratch.path()) == 1);
}

TEST_CASE("files: a large file is read whole, also if the system does not report its size") {
  TemporaryDirectory scratch;
  const std::string bytes(3'000'001, 'x');
  write_file_atomically(scratch.path() / "large", bytes);
  CHECK(read_file(scratch.path() / "large") == bytes);
  CHECK(read_file("/proc/self/status").find("Name:") != std::string::npos);
}

TEST_CASE("files: the error for a missing file names the path and the system's reason") {
  TemporaryDirectory scratch;
  try {
    read_file(scratch.path() / "no-such");
    FAIL("expected an error");
  } catch (const IoError& error) {
    CHECK(error.code() == "io.open");
    CHECK(error.exit_code() == 4);
    CHECK(std::string(error.what()).find("no-such") != std::string::npos);
    CHECK(std::string(error.what()).find("No such file") != std::string::npos);
  }
  CHECK(code_of([&] { read_file(scratch.path()); }) == "io.read");
  CHECK(code_of([&] { write_file_atomically(scratch.path() / "no-folder" / "x", "1"); }) ==
        "io.open");
}

TEST_CASE("files: a path that cannot be looked up is an error and not a missing file") {
  const TemporaryDirectory scratch;
  write_file_atomically(scratch.path() / "file", "1");
  CHECK(path_exists(scratch.path() / "file"));
  CHECK_FALSE(path_exists(scratch.path() / "other"));
  CHECK_FALSE(path_exists(scratch.path() / "file" / "other"));
  fs::create_symlink("loop", scratch.path() / "loop");
  CHECK(code_of([&] { (void)path_exists(scratch.path() / "loop"); }) == "io.open");
}

TEST_CASE("files: an error of the standard library keeps its path and its reason") {
  try {
    (void)fs::file_size("/nowhere/file");
    FAIL("expected an error");
  } catch (const fs::filesystem_error& error) {
    const IoError same = io_error_of(error);
    CHECK(same.code() == "io.file-system");
    CHECK(same.text().what == "cannot use /nowhere/file");
    CHECK(same.text().got == "No such file or directory");
    CHECK(same.hint() == "check the path; a folder above it may be missing");
  }
}

TEST_CASE("files: what a program prints to a closed stream does not get into its files") {
  const TemporaryDirectory scratch;
  const fs::path file = scratch.path() / "model";
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(stream);
    AtomicFile out(file);
    int printed = 0;
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
      printed += ::write(stream, "step 1", 6) > 0 ? 1 : 0;
    out.write("weights");
    out.commit();
    _exit(printed);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(read_file(file) == "weights");
}

TEST_CASE("files: an atomic file that is not committed leaves the old content") {
  TemporaryDirectory scratch;
  write_file_atomically(scratch.path() / "x", "old");
  {
    AtomicFile file(scratch.path() / "x");
    file.write("new");
    CHECK(count_entries(scratch.path()) == 2);
    CHECK(read_file(scratch.path() / "x") == "old");
  }
  CHECK(read_file(scratch.path() / "x") == "old");
  CHECK(count_entries(scratch.path()) == 1);
}

TEST_CASE("files: a write that fails halfway leaves the old content") {
  TemporaryDirectory scratch;
  write_file_atomically(scratch.path() / "x", "old");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string code =
      code_of([&] { write_file_atomically(scratch.path() / "x", std::string(5000, 'n')); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(code == "io.write");
  CHECK(read_file(scratch.path() / "x") == "old");
  CHECK(count_entries(scratch.path()) == 1);
}

TEST_CASE("files: a staged folder appears only at commit") {
  TemporaryDirectory scratch;
  const fs::path target = scratch.path() / "deep" / "checkpoint-10";
  StagedDirectory staged(target);
  fs::create_directories(staged.path() / "inner");
  write_file_atomically(staged.path() / "inner" / "a", "1");
  CHECK_FALSE(fs::exists(target));
  CHECK(is_partial(staged.path()));
  staged.commit();
  CHECK(read_file(target / "inner" / "a") == "1");
  CHECK(staged.committed());
  CHECK(count_entries(scratch.path() / "deep") == 1);
}

TEST_CASE("files: a staged folder that is not committed is removed") {
  TemporaryDirectory scratch;
  {
    StagedDirectory staged(scratch.path() / "c/");
    CHECK(staged.path().filename().string().rfind(".c.partial-", 0) == 0);
    write_file_atomically(staged.path() / "a", "1");
  }
  CHECK(count_entries(scratch.path()) == 0);
}

TEST_CASE("files: old files of a process with the same pid do not get into the new folder") {
  TemporaryDirectory scratch;
  const fs::path left = scratch.path() / (".c.partial-" + std::to_string(getpid()));
  fs::create_directory(left);
  write_file_atomically(left / "old", "1");
  StagedDirectory staged(scratch.path() / "c");
  staged.commit();
  CHECK(fs::is_empty(scratch.path() / "c"));
}

TEST_CASE("files: two objects of a process do not stage one folder at once") {
  TemporaryDirectory scratch;
  const fs::path target = scratch.path() / "c";
  StagedDirectory first(target);
  write_file_atomically(first.path() / "a", "1");
  CHECK(code_of([&] { const StagedDirectory second(scratch.path() / "x/../c"); }) == "io.staged");
  first.commit();
  CHECK(read_file(target / "a") == "1");
  const StagedDirectory next(target);
  CHECK(fs::is_empty(next.path()));
}

TEST_CASE("files: committing over a folder is refused, or replaces it if requested") {
  TemporaryDirectory scratch;
  const fs::path target = scratch.path() / "c";
  fs::create_directory(target);
  write_file_atomically(target / "old", "1");
  StagedDirectory staged(target);
  write_file_atomically(staged.path() / "new", "2");
  CHECK(code_of([&] { staged.commit(); }) == "io.exists");
  CHECK(read_file(target / "old") == "1");
  staged.commit(OverwritePolicy::replace);
  CHECK(read_file(target / "new") == "2");
  CHECK_FALSE(fs::exists(target / "old"));
  CHECK(count_entries(scratch.path()) == 1);
}

TEST_CASE("files: names of unfinished writes are recognized") {
  CHECK(is_partial("run/.checkpoint-10.partial-123"));
  CHECK(is_partial(".model.safetensors.tmp-12-3"));
  CHECK_FALSE(is_partial("checkpoint-10"));
  CHECK_FALSE(is_partial("checkpoint.partial-12"));
  CHECK_FALSE(is_partial(".hidden"));
  CHECK_FALSE(is_partial(".x.tmp-12"));
  CHECK(is_partial(".checkpoint-10.partial-12-3456-node_7.0a1b2c3d"));
  CHECK(is_partial(".model.safetensors.tmp-1-12-3456-node_7.0a1b2c3d"));
  CHECK(is_partial(".checkpoint-10.replaced-12-3456-node_7.0a1b2c3d"));
  CHECK_FALSE(is_partial(".checkpoint-10.partial-x-3456-node_7.0a1b2c3d"));
}

TEST_CASE("files: the staged folder of a killed process is abandoned and removed") {
  TemporaryDirectory scratch;
  stage_in_killed_process(scratch.path() / "checkpoint-7");
  const fs::path left = only_entry(scratch.path());
  CHECK(left.filename().string().starts_with(".checkpoint-7.partial-"));
  CHECK(is_abandoned(left));
  remove_abandoned(scratch.path(), [](const std::string& target) { return target == "other"; });
  CHECK(fs::exists(left));
  remove_abandoned(scratch.path(),
                   [](const std::string& target) { return target == "checkpoint-7"; });
  CHECK_FALSE(fs::exists(left));
}

TEST_CASE("files: the staged folder of a living process is not abandoned, however old it is") {
  TemporaryDirectory scratch;
  const StagedDirectory staged(scratch.path() / "c");
  set_age(staged.path(), std::chrono::hours(48));
  CHECK_FALSE(is_abandoned(staged.path()));
  remove_abandoned(scratch.path(), [](const std::string&) { return true; });
  CHECK(fs::exists(staged.path()));
}

TEST_CASE("files: the staged folder of an earlier process with the same PID is abandoned") {
  TemporaryDirectory scratch;
  const StagedDirectory staged(scratch.path() / "c");
  const std::string name = staged.path().filename().string();
  const std::size_t start = name.find('-', name.rfind(".partial-") + 9) + 1;
  const fs::path earlier =
      scratch.path() / (name.substr(0, start) + "1" + name.substr(name.find('-', start)));
  fs::create_directory(earlier);
  CHECK(is_abandoned(earlier));
}

TEST_CASE("files: another machine's staged folder is abandoned once it stops changing") {
  TemporaryDirectory scratch;
  const std::string pid = std::to_string(getpid());
  for (const std::string& name :
       {std::string(".c.partial-") + pid + "-1-elsewhere.0a1b2c3d",
        std::string(".c.partial-999999999-1-other.unknown"), std::string(".c.partial-999999999")}) {
    CAPTURE(name);
    const fs::path folder = scratch.path() / name;
    fs::create_directory(folder);
    std::ofstream(folder / "weights") << "half";
    CHECK_FALSE(is_abandoned(folder));
    set_age(folder, std::chrono::minutes(70));
    CHECK(is_abandoned(folder));
    std::ofstream(folder / "weights") << "more";  // it is still being written
    CHECK_FALSE(is_abandoned(folder));
  }
}

TEST_CASE("files: an old folder that was moved aside for a new one gets its name back") {
  TemporaryDirectory scratch;
  const fs::path aside = scratch.path() / ".c.replaced-999999999-1-elsewhere.0a1b2c3d";
  fs::create_directory(aside);
  write_file_atomically(aside / "weights", "old");
  set_age(aside, std::chrono::minutes(70));
  remove_abandoned(scratch.path(), [](const std::string&) { return true; });
  CHECK(read_file(scratch.path() / "c" / "weights") == "old");
  fs::create_directory(aside);
  set_age(aside, std::chrono::minutes(70));
  remove_abandoned(scratch.path(), [](const std::string&) { return true; });
  CHECK(read_file(scratch.path() / "c" / "weights") == "old");
  CHECK(count_entries(scratch.path()) == 1);
}

TEST_CASE("files: too little free space is an error that says what needs the space") {
  TemporaryDirectory scratch;
  check_free_space(scratch.path(), 1, "a checkpoint");
  try {
    check_free_space(scratch.path(), std::uintmax_t{1} << 60, "a checkpoint");
    FAIL("expected an error");
  } catch (const IoError& error) {
    CHECK(error.code() == "io.no-space");
    CHECK(std::string(error.what()).find("for a checkpoint") != std::string::npos);
  }
}

TEST_CASE("files: a folder is not writable if no bytes can be written to its files") {
  TemporaryDirectory scratch;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit none{0, before.rlim_max};  // as on a full disk, empty files can still be created
  setrlimit(RLIMIT_FSIZE, &none);
  const std::string code = code_of([&] { check_writable_directory(scratch.path()); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(code == "io.not-writable");
  CHECK(count_entries(scratch.path()) == 0);
}

TEST_CASE("files: a folder that takes only part of a block is refused with the reason") {
  TemporaryDirectory scratch;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  std::string text;
  try {
    check_writable_directory(scratch.path());
  } catch (const IoError& error) {
    text = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK_MESSAGE(text.find("File too large") != std::string::npos, text);
  CHECK_MESSAGE(text.find("ulimit -f") != std::string::npos, text);
  CHECK(count_entries(scratch.path()) == 0);
}

TEST_CASE("files: the check for a writable folder writes to it, and creates it if missing") {
  TemporaryDirectory scratch;
  check_writable_directory(scratch.path() / "a" / "b");
  CHECK(fs::is_empty(scratch.path() / "a" / "b"));
  write_file_atomically(scratch.path() / "file", "1");
  CHECK(code_of([&] { check_writable_directory(scratch.path() / "file"); }) ==
        "io.not-a-directory");
  std::string text;
  try {
    check_writable_directory(scratch.path() / "file" / "x");
  } catch (const IoError& error) {
    text = error.what();
    CHECK(error.code() == "io.not-writable");
  }
  CHECK_MESSAGE(text.find("a part of it is a file, not a folder") != std::string::npos, text);
  CHECK(code_of([&] { check_writable_directory("/proc/self"); }) == "io.not-writable");
  fs::create_symlink("purged", scratch.path() / "link");
  CHECK(code_of([&] { check_writable_directory(scratch.path() / "link"); }) ==
        "io.not-a-directory");
  CHECK_FALSE(fs::exists(scratch.path() / "purged"));
}

TEST_CASE("files: a temporary folder is new each time and is deleted with its object") {
  fs::path first;
  {
    TemporaryDirectory a, b;
    first = a.path();
    CHECK(a.path() != b.path());
    write_file_atomically(a.path() / "x", "1");
  }
  CHECK_FALSE(fs::exists(first));
}

TEST_CASE("files: a folder for temporary files that does not exist is reported with its variable") {
  const std::string before = environment_variable("TMPDIR");
  std::string what, got, code;
  {
    const ScopedVariable variable("TMPDIR", "/nonexistent");
    try {
      const TemporaryDirectory folder;
    } catch (const IoError& error) {
      what = error.text().what;
      got = error.text().got;
      code = error.code();
    }
  }
  CHECK(code == "io.mkdir");
  CHECK(what == "TMPDIR");
  CHECK(got == "/nonexistent: No such file or directory");
  CHECK(temporary_folder() == "/tmp");  // TMPDIR is unset now
  {
    const TemporaryDirectory folder;
    const ScopedVariable variable("TMPDIR", folder.path().c_str());
    CHECK(temporary_folder() == folder.path());
  }
  if (!before.empty()) ::setenv("TMPDIR", before.c_str(), 1);
}

TEST_CASE("files: a file is read in blocks, in order and without loss") {
  const TemporaryDirectory scratch;
  std::string content;
  for (int i = 0; content.size() < (3u << 20); ++i) content += std::to_string(i);
  write_file_atomically(scratch.path() / "large", content);
  std::string read;
  int blocks = 0;
  read_blocks(scratch.path() / "large", [&](std::string_view block) {
    read += block;
    ++blocks;
  });
  CHECK(read == content);
  CHECK(blocks > 1);
  CHECK(code_of([&] { read_blocks(scratch.path() / "none", [](std::string_view) {}); }) ==
        "io.open");
  CHECK(code_of([&] { read_blocks(scratch.path(), [](std::string_view) {}); }) == "io.read");
}

TEST_CASE("files: a folder is removed with its content") {
  const TemporaryDirectory scratch;
  fs::create_directories(scratch.path() / "old" / "below");
  write_file_atomically(scratch.path() / "old" / "below" / "file", "1");
  remove_directory(scratch.path() / "old");
  CHECK(count_entries(scratch.path()) == 0);
  CHECK(code_of([&] { remove_directory(scratch.path() / "old"); }) == "io.rename");
}

}  // namespace base_files_test
