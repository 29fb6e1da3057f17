// Checks that all data of a save is on the disk when the save returns.
//
//   synced_saves
//
// It watches the calls that write, sync, create and rename. It keeps a list of the files with
// bytes, and of the folders with entries, that have changed since their last sync. A power failure
// may undo or empty these. When a save has returned, none of them may be left in its folder.
#undef _FORTIFY_SOURCE  // it would define some of the functions below

#include <fcntl.h>
#include <sys/stat.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <filesystem>
#include <functional>
#include <iostream>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/folder_lock.h"
#include "faults/real_call.h"
#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/data/column_dataset.h"
#include "hasten/exported/exported_module.h"
#include "hasten/formats/module_weights.h"
#include "hasten/formats/weights.h"
#include "hasten/optim/adamw.h"
#include "hasten/trainer/trainer.h"

namespace {

namespace fs = std::filesystem;

// Identifies a file or a folder by its device and its inode number.
using Inode = std::pair<dev_t, ino_t>;

struct Unsynced {
  std::mutex mutex;
  std::set<Inode> files, folders;
};

Unsynced& unsynced() {
  static auto* const all = new Unsynced;  // libraries still write at exit
  return *all;
}

std::optional<Inode> inode_of(int file) {
  struct stat status {};
  if (::fstat(file, &status) != 0) return std::nullopt;
  return Inode{status.st_dev, status.st_ino};
}

std::optional<Inode> inode_of(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return Inode{status.st_dev, status.st_ino};
}

void record_unsynced_file(int file) {
  const auto inode = inode_of(file);
  const std::lock_guard lock(unsynced().mutex);
  if (inode) unsynced().files.insert(*inode);
}

void record_unsynced_folder(const char* path) {
  const fs::path parent = fs::path(path).parent_path();
  const auto inode = inode_of(parent.empty() ? fs::path(".") : parent);
  const std::lock_guard lock(unsynced().mutex);
  if (inode) unsynced().folders.insert(*inode);
}

// Removes the file or the folder from the lists.
void mark_synced(const std::optional<Inode>& inode) {
  const std::lock_guard lock(unsynced().mutex);
  if (!inode) return;
  unsynced().files.erase(*inode);
  unsynced().folders.erase(*inode);
}

}  // namespace

// The libraries of the process call these functions instead of the system's.
#pragma GCC visibility push(default)
extern "C" {

ssize_t write(int file, const void* bytes, size_t size) {
  static const auto real = real_call<ssize_t (*)(int, const void*, size_t)>("write");
  const ssize_t written = real(file, bytes, size);
  const int error = errno;
  if (written > 0) record_unsynced_file(file);
  errno = error;
  return written;
}

int fsync(int file) {
  static const auto real = real_call<int (*)(int)>("fsync");
  const int result = real(file);
  if (result == 0) mark_synced(inode_of(file));
  return result;
}

int fdatasync(int file) {
  static const auto real = real_call<int (*)(int)>("fdatasync");
  const int result = real(file);
  if (result == 0) mark_synced(inode_of(file));
  return result;
}

int open(const char* path, int flags, ...) {
  static const auto real = real_call<int (*)(const char*, int, ...)>("open");
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  // A lock has no use after a power failure.
  const bool is_lock = fs::path(path).filename() == hasten::kLockFile;
  const bool creates = (flags & O_CREAT) != 0 && !is_lock && ::access(path, F_OK) != 0;
  const int file = real(path, flags, mode);
  const int error = errno;
  if (creates && file >= 0) {
    mark_synced(inode_of(file));  // a deleted file may have had the same inode number
    record_unsynced_folder(path);
  }
  errno = error;
  return file;
}

int rename(const char* from, const char* to) noexcept {
  static const auto real = real_call<int (*)(const char*, const char*)>("rename");
  const int result = real(from, to);
  if (result == 0) record_unsynced_folder(to);
  return result;
}

int renameat2(int at, const char* from, int to_at, const char* to, unsigned flags) noexcept {
  static const auto real =
      real_call<int (*)(int, const char*, int, const char*, unsigned)>("renameat2");
  const int result = real(at, from, to_at, to, flags);
  if (result == 0) record_unsynced_folder(to);
  return result;
}

int mkdir(const char* path, mode_t mode) noexcept {
  static const auto real = real_call<int (*)(const char*, mode_t)>("mkdir");
  const int result = real(path, mode);
  const int error = errno;
  if (result == 0) {
    mark_synced(inode_of(fs::path(path)));
    record_unsynced_folder(path);
  }
  errno = error;
  return result;
}

}  // extern "C"
#pragma GCC visibility pop

namespace {

using namespace hasten;

// Returns the changes that a power failure could undo in the folder and in the folders above it, up
// to `root`.
std::string unsynced_below(const fs::path& root) {
  const std::lock_guard lock(unsynced().mutex);
  std::string found;
  const auto look_at = [&](const fs::path& path) {
    const auto inode = inode_of(path);
    if (inode && unsynced().files.contains(*inode)) found += "\n  bytes of " + path.string();
    if (inode && unsynced().folders.contains(*inode)) found += "\n  entries of " + path.string();
  };
  look_at(root);
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root))
    look_at(entry.path());
  return found;
}

int failures = 0;

void check(const std::string& what, const std::function<void(const fs::path& folder)>& save) {
  const TemporaryDirectory scratch("hasten-synced");
  save(scratch.path());
  const std::string left = unsynced_below(scratch.path());
  std::cout << (left.empty() ? "ok      " : "FAILED  ") << what << left << '\n';
  failures += left.empty() ? 0 : 1;
}

TensorDict weights() {
  return {{"a", at::ones({100, 100})}, {"b", at::ones({100, 100})}, {"c", at::ones({10})}};
}

struct NetImpl : torch::nn::Module {
  NetImpl() { linear = register_module("linear", torch::nn::Linear(4, 1)); }
  at::Tensor forward(const at::Tensor& x) { return linear(x); }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(Net);

void save_states(const fs::path& folder, bool asynchronous) {
  Accelerator accelerator(
      {.project_config = {
           .project_dir = folder / "run", .automatic_checkpoint_naming = true, .total_limit = 2}});
  Net net;
  AdamW adamw(net->parameters(), AdamWOptions(0.1));
  auto [model, optimizer] = accelerator.prepare(net, adamw);
  for (int step = 0; step < 4; ++step) {
    accelerator.backward(model->forward(at::ones({2, 4})).sum());
    optimizer.step();
    optimizer.zero_grad();
    accelerator.save_state({}, {.asynchronous = asynchronous});
  }
  accelerator.wait_for_save();
}

void train(const fs::path& folder) {
  TrainingArguments args;
  args.output_dir = (folder / "out").string();
  args.max_steps = 4;
  args.save_steps = 2;
  args.hash_chain_steps = 1;
  args.use_cpu = true;
  args.disable_tqdm = true;
  Net net;
  Trainer trainer(net.ptr(), args,
                  {.train_dataset = TrainerDataset(
                       ColumnDataset({{"x", at::ones({32, 4})}, {"y", at::ones({32, 1})}})),
                   .compute_loss =
                       [](NetImpl& net, const TensorDict& batch) {
                         return torch::mse_loss(net.forward(batch.at("x")), batch.at("y"));
                       },
                   .log_sink = [](std::string_view) {}});
  trainer.train();
  trainer.save_model();
  trainer.save_state();
}

}  // namespace

int main() {
  check("one file of weights", [](const fs::path& folder) { save_weights(folder, weights()); });
  check("weights in shards", [](const fs::path& folder) {
    save_weights(folder, weights(), {.max_shard_size = 50'000});
  });
  check("weights in shards that replace others", [](const fs::path& folder) {
    save_weights(folder / "model", weights(), {.max_shard_size = 50'000});
    TensorDict other = weights();
    other["d"] = at::zeros({100, 100});
    save_weights(folder / "model", other, {.max_shard_size = 50'000});
  });
  check("an exported program", [](const fs::path& folder) {
    load_exported(HASTEN_TEST_DATA "/oracle/data/exported/mlp.pt2")->save(folder / "model.pt2");
  });
  check("a file in a folder that is made for it", [](const fs::path& folder) {
    make_directories(folder / "a" / "b");
    write_file_atomically(folder / "a" / "b" / "c.txt", "text");
  });
  check("states of an Accelerator", [](const fs::path& f) { save_states(f, false); });
  check("states of an Accelerator, asynchronous", [](const fs::path& f) { save_states(f, true); });
  check("a run of the Trainer", train);
  return failures == 0 ? 0 : 1;
}
