// File: hasten/base/files.h
// Reads whole files, and writes files and folders so that a crash at any moment leaves either the
// old content or the new content, never a part of it.
//
//   write_file_atomically("run/state.json", text);   // temporary file, fsync, rename
//
//   StagedDirectory staged("run/checkpoint-10");     // in run/.checkpoint-10.partial-<writer>
//   write_file_atomically(staged.path() / "a.json", text);
//   staged.commit();                                 // fsync of every file, then one rename
//
// Sizes are bytes. A name that starts with a dot and ends in ".partial-<writer>" (a folder) or
// ".tmp-<n>-<writer>" (a file) is unfinished, and readers ignore it (is_partial). <writer> is the
// process ID, the start time of the process, and the host's name with a digest of the machine and
// of the PID namespace, so that processes of different machines or containers never use the same
// name. is_abandoned finds what a killed process has left behind, and remove_abandoned deletes it.
//
// Thread rule: the functions are safe on any thread; an object belongs to one thread at a time.
// Throws IoError "io.*" with the path and the operating system's message. Requires POSIX; the
// guarantees rest on rename(2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/base/detail/export.h"

namespace hasten {

// Returns the whole file as bytes. Throws "io.open" if it cannot be opened, and "io.read" if it
// cannot be read (a folder, for example).
HASTEN_API std::string read_file(const std::filesystem::path& path);
// Reads the file from its beginning to its end, and passes it to `use` in blocks of at most 1 MiB.
// Throws "io.open" and "io.read".
HASTEN_API void read_blocks(const std::filesystem::path& path,
                            const std::function<void(std::string_view block)>& use);

// A file that appears under its name at commit() and not before. Without commit() the destructor
// deletes it.
class HASTEN_API AtomicFile {
 public:
  // Opens a new temporary file in the folder of `path`, which must exist.
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(const void* bytes, std::size_t size);
  void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }
  // Syncs the file, renames it to `path` and syncs the folder. Replaces a symbolic link at `path`
  // rather than following it. A file below a StagedDirectory of this process is synced by the
  // commit() of the StagedDirectory instead.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int file_;
};

// Writes all bytes through an AtomicFile.
HASTEN_API void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

// The action of commit() if the folder already exists.
enum class OverwritePolicy {
  refuse,   // Throws IoError "io.exists".
  replace,  // Swaps the old folder for the new one in one step, then deletes it.
};

// A folder that appears complete or not at all.
class HASTEN_API StagedDirectory {
 public:
  // Creates `.<name>.partial-<writer>` next to `target`, and the missing folders above it. Deletes
  // a leftover of the same name first.
  explicit StagedDirectory(std::filesystem::path target);
  StagedDirectory(const StagedDirectory&) = delete;
  StagedDirectory& operator=(const StagedDirectory&) = delete;
  // Deletes the staged folder unless it was committed.
  ~StagedDirectory();

  // The folder to write to until commit().
  const std::filesystem::path& path() const noexcept { return staged_; }
  const std::filesystem::path& target() const noexcept { return target_; }
  bool committed() const noexcept { return committed_; }

  // Syncs every staged file and folder, renames the folder to target(), and syncs the folder above.
  // If it throws, the target is unchanged, and the staged folder stays until the destructor runs.
  void commit(OverwritePolicy policy = OverwritePolicy::refuse);
  // Does the same as commit(), but an old folder gets the name `kept`, an unused path next to
  // target(), and stays. If the process is killed meanwhile, `kept` may be the new folder, which is
  // complete.
  void commit_and_keep(const std::filesystem::path& kept);

 private:
  std::filesystem::path target_;
  std::filesystem::path staged_;
  bool committed_ = false;
};

// True if this is the name of an unfinished AtomicFile or StagedDirectory, of any process.
HASTEN_API bool is_partial(const std::filesystem::path& path);

// True if `path` is unfinished (is_partial) and nobody will finish it: its writer ran on this
// machine in this PID namespace and no longer exists; or it ran elsewhere, and nothing in `path`
// has changed for an hour.
HASTEN_API bool is_abandoned(const std::filesystem::path& path);

// Deletes the abandoned entries of `folder` (is_abandoned) if `is_target` accepts their final name.
// An old folder that was moved aside for a new one that never came gets its name back. Entries that
// cannot be deleted stay. Does not throw, except what `is_target` throws.
HASTEN_API void remove_abandoned(const std::filesystem::path& folder,
                                 const std::function<bool(const std::string& target)>& is_target);

// Renames the folder to an unfinished name, and deletes it with its content. After a crash it is
// either whole or gone. Throws "io.rename" if it cannot be renamed; what cannot be deleted stays
// under the unfinished name.
HASTEN_API void remove_directory(const std::filesystem::path& folder);

// Syncs the folder's entries, after one of them has been renamed. Throws "io.open" and "io.sync".
HASTEN_API void sync_directory(const std::filesystem::path& folder);

// Moves the files `names` from the folder `from` to the folder `to`, in this order, replacing files
// of the same names, and syncs `to`. Both folders must be on one file system. Throws "io.rename".
HASTEN_API void move_files(const std::filesystem::path& from, const std::filesystem::path& to,
                           const std::vector<std::string>& names);

// Creates the folder and the missing ones above it. Throws "io.mkdir".
HASTEN_API void make_directories(const std::filesystem::path& path);

// Checks that files can be written in the folder `path`, which it creates if it is missing, by
// writing a small file and removing it. Throws "io.not-a-directory" or "io.not-writable".
HASTEN_API void check_writable_directory(const std::filesystem::path& path);

// Throws "io.no-space" if the file system of the folder has less than `bytes` free. `purpose` names
// the use of the space in the message. Does nothing if the file system does not report its free
// space.
HASTEN_API void check_free_space(const std::filesystem::path& path, std::uintmax_t bytes,
                                 const std::string& purpose);

// Returns the folder for temporary files: $TMPDIR, or /tmp if the variable is unset or empty.
// Throws "io.mkdir" with the variable and its value if it is not a folder.
HASTEN_API std::filesystem::path temporary_folder();

// A new empty folder in temporary_folder(), which the destructor deletes with its content. For
// tests and temporary data.
class HASTEN_API TemporaryDirectory {
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
