// File: hasten/base/files.h
// Reading files whole, and writing them so that a crash at any moment leaves either the old content
// or the new one, never half of it.
//
//   write_file_atomically("run/state.json", text);   // temporary file, fsync, rename
//
//   StagedDirectory staged("run/checkpoint-10");     // for now run/.checkpoint-10.partial-<writer>
//   write_file_atomically(staged.path() / "a.json", text);
//   staged.commit();                                 // fsync of every file, and one rename
//
// Sizes are bytes. A name that starts with a dot and ends in ".partial-<writer>" (a folder) or
// ".tmp-<n>-<writer>" (a file) is not finished: readers ignore it (is_partial). <writer> is the
// process's number, its start time, and the name of its host with digits for the machine and PID
// namespace, so that processes of several machines or containers do not meet in one folder. What a
// killed process leaves is found by is_abandoned and deleted by remove_abandoned.
// Thread rule: the functions may be called from any thread; an object belongs to one thread at a
// time.
// Throws IoError with a code "io.*", the path and the operating system's own words. POSIX;
// rename(2) is the promise that all of it rests on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace hasten {

// The whole file as bytes. "io.open" if it cannot be opened, "io.read" if reading fails (a folder,
// for example).
std::string read_file(const std::filesystem::path& path);

// A file that appears under its name at commit() and not before. Destroyed without commit() it
// leaves nothing.
class AtomicFile {
 public:
  // Opens a new temporary file in the folder of `path`, which must exist.
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(const void* bytes, std::size_t size);
  void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }
  // fsync, rename over `path`, fsync of its folder. A symbolic link at `path` is replaced, not
  // followed.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int file_;
};

// AtomicFile with all the bytes at hand.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

// What commit() does where the folder is already there.
enum class Existing {
  refuse,   // IoError "io.exists"
  replace,  // the old folder is swapped for the new one in one step, then deleted
};

// A folder that appears complete or not at all.
class StagedDirectory {
 public:
  // Makes `.<name>.partial-<writer>` beside `target`, and the folders above it where missing.
  // A leftover of the same name is deleted first.
  explicit StagedDirectory(std::filesystem::path target);
  StagedDirectory(const StagedDirectory&) = delete;
  StagedDirectory& operator=(const StagedDirectory&) = delete;
  // Deletes what was staged unless it was committed.
  ~StagedDirectory();

  // Where to write until commit().
  const std::filesystem::path& path() const noexcept { return staged_; }
  const std::filesystem::path& target() const noexcept { return target_; }
  bool committed() const noexcept { return committed_; }

  // fsync of every file and folder staged, rename to target(), fsync of the folder above. On an
  // error the staged folder stays until the destructor, and the target is what it was.
  void commit(Existing existing = Existing::refuse);

 private:
  std::filesystem::path target_;
  std::filesystem::path staged_;
  bool committed_ = false;
};

// Whether a file or folder name is that of an unfinished AtomicFile or StagedDirectory, of
// whichever process.
bool is_partial(const std::filesystem::path& path);

// Whether `path` is one (is_partial) that nobody will finish: its writer ran in this machine's
// process numbers and is gone; or it ran elsewhere, and nothing has changed in it for an hour.
bool is_abandoned(const std::filesystem::path& path);

// Deletes from `folder` what is_abandoned finds and was to get a name that `concerns` accepts. An
// old folder that was moved aside for a new one, which then never came, gets its name back.
// What cannot be deleted stays.
void remove_abandoned(const std::filesystem::path& folder,
                      const std::function<bool(const std::string& target)>& concerns);

// Renames the files `names` of the folder `from` into the folder `to`, in that order, over files of
// these names, and syncs the folder. Both are on one file system. "io.rename".
void move_files(const std::filesystem::path& from, const std::filesystem::path& to,
                const std::vector<std::string>& names);

// The folder and those above it, where they are missing. "io.mkdir".
void make_directories(const std::filesystem::path& path);

// Makes sure that files can be written in the folder `path`, creating it where it is missing, by
// writing a small one and removing it again. "io.not-a-directory" or "io.not-writable" otherwise.
void check_writable_directory(const std::filesystem::path& path);

// Throws IoError "io.no-space" where the file system of the folder has less free space; `purpose`
// says in the message what the space is for.
void check_free_space(const std::filesystem::path& path, std::uintmax_t bytes,
                      const std::string& purpose);

// A new empty folder under $TMPDIR (or /tmp), deleted with all it holds at the end. For tests and
// scratch data.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(std::string_view prefix = "hasten");
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory();
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace hasten
