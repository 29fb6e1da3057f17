// Measures checkpoints of a state of some size: a model and AdamW's moments, three times the
// weights. Prints one JSON line.
//
//   $ durability FOLDER [--mb MEGABYTES] [--rounds N]
//
// save_mb_s: save_state with checksums and fsync, to a new folder each time. disk_mb_s: a plain
// write of the same bytes and one fsync, like `dd conv=fsync`; it alternates with save_state.
// stall_ms: how long an asynchronous save_state blocks the training thread. copy_ms: a copy of the
// same tensors. load_mb_s: load_state of a folder that is in memory. verify_mb_s: only the check of
// its checksums. hash_mb_s: the hashes of one link of the hash chain.
#include <fcntl.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/hash_chain.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/optim/adamw.h"

namespace {

using Clock = std::chrono::steady_clock;
using namespace hasten;
namespace fs = std::filesystem;

constexpr std::int64_t kWidth = 1024;  // a layer has 4 MiB

double seconds_of(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

std::uintmax_t bytes_of(const fs::path& folder) {
  std::uintmax_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += entry.file_size();
  return bytes;
}

// Writes and syncs the given number of bytes, which is the size of a checkpoint.
void write_plain(const fs::path& path, const std::vector<char>& block, std::uintmax_t bytes) {
  const int file = ::open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
  bool ok = file >= 0;
  for (std::uintmax_t done = 0; ok && done < bytes;) {
    const auto size = std::min<std::uintmax_t>(block.size(), bytes - done);
    ok = ::write(file, block.data(), size) == static_cast<ssize_t>(size);
    done += size;
  }
  ok = ok && ::fsync(file) == 0;
  if (file >= 0) ::close(file);
  if (!ok) throw std::runtime_error("cannot write " + path.string());
}

struct Run {
  explicit Run(std::int64_t megabytes) {
    for (std::int64_t layer = 0; layer < std::max<std::int64_t>(1, megabytes / 12); ++layer)
      net->push_back(torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false)));
    adamw.emplace(net->parameters());
    for (const at::Tensor& parameter : net->parameters())
      parameter.mutable_grad() = at::randn_like(parameter);
    adamw->step();
    adamw->zero_grad();
  }
  // Returns the tensors of a checkpoint.
  std::vector<at::Tensor> tensors() const {
    std::vector<at::Tensor> all;
    for (const at::Tensor& parameter : net->parameters()) {
      const auto& state = static_cast<const torch::optim::AdamWParamState&>(
          *adamw->state().at(parameter.unsafeGetTensorImpl()));
      for (const at::Tensor& tensor : {parameter.detach(), state.exp_avg(), state.exp_avg_sq()})
        all.push_back(tensor);
    }
    return all;
  }

  Accelerator accelerator{{.cpu = true}};
  torch::nn::Sequential net;
  std::optional<AdamW> adamw;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  std::int64_t megabytes = 600, rounds = 5;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--mb") megabytes = std::atoll(argv[i + 1]);
    if (std::string(argv[i]) == "--rounds") rounds = std::atoll(argv[i + 1]);
  }
  at::set_num_threads(1);
  const fs::path folder = fs::path(argv[1]) / "durability";
  fs::create_directories(folder);
  Run run(megabytes);
  const auto prepared =
      run.accelerator.prepare(run.net, *run.adamw);  // a checkpoint contains the prepared objects
  run.accelerator.save_state(folder / "state");      // the folder that is loaded below
  const std::uintmax_t bytes = bytes_of(folder / "state");
  const double size = static_cast<double>(bytes) / 1e6;
  std::vector<char> block(std::size_t{4} << 20);
  for (std::size_t i = 0; i < block.size(); ++i)
    block[i] = static_cast<char>(i * 2654435761u >> 13);
  const std::vector<at::Tensor> tensors = run.tensors();
  TensorDict named;
  for (std::size_t i = 0; i < tensors.size(); ++i) named[str(i)] = tensors[i];
  std::vector<double> save, disk, stall, copy, load, verify, hash;
  for (std::int64_t round = 0; round < rounds; ++round) {
    ::sync();
    disk.push_back(seconds_of([&] { write_plain(folder / "plain", block, bytes); }));
    fs::remove(folder / "plain");
    ::sync();
    save.push_back(seconds_of([&] { run.accelerator.save_state(folder / "saved"); }));
    remove_directory(folder / "saved");
    ::sync();
    copy.push_back(seconds_of([&] {
      std::vector<at::Tensor> copies;
      for (const at::Tensor& tensor : tensors) copies.push_back(tensor.clone());
    }));
    stall.push_back(
        seconds_of([&] { run.accelerator.save_state(folder / "saved", {.asynchronous = true}); }));
    run.accelerator.wait_for_save();
    remove_directory(folder / "saved");
    hash.push_back(seconds_of([&] { static_cast<void>(tensor_hashes(named)); }));
    verify.push_back(seconds_of([&] { verify_checkpoint(folder / "state"); }));
    load.push_back(seconds_of([&] { run.accelerator.load_state(folder / "state"); }));
  }
  std::printf(
      "{\"mb\": %.0f, \"save_mb_s\": %.0f, \"disk_mb_s\": %.0f, \"save_share_of_disk\": %.3f, "
      "\"stall_ms\": %.1f, \"copy_ms\": %.1f, \"stall_per_copy\": %.3f, \"load_mb_s\": %.0f, "
      "\"verify_mb_s\": %.0f, \"hash_mb_s\": %.0f}\n",
      size, size / median(save), size / median(disk), median(disk) / median(save),
      median(stall) * 1e3, median(copy) * 1e3, median(stall) / median(copy), size / median(load),
      size / median(verify), size / median(hash));
  fs::remove_all(folder);
}
