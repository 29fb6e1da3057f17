#include "trainer/run_hashes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <system_error>

#include "base/descriptor.h"
#include "base/file_calls.h"
#include "base/sha256.h"
#include "checkpoint/damaged_checkpoint.h"
#include "checkpoint/optimizer_state.h"
#include "formats/module_tensors.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/hash_chain.h"
#include "hasten/process/once.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void throw_write_error(const fs::path& file, std::size_t bytes) {
  const int error = errno;  // str() may change it
  throw_file_error("io.write", str("cannot write ", bytes, " bytes to"), file, error);
}

// Writes the lines after the first `kept` bytes of the file, waits until the disk has them, and
// returns the new size. Cuts off what a failed call has left behind these bytes.
std::int64_t append_synced(const fs::path& file, std::int64_t kept, const std::string& lines) {
  const Descriptor out(open_file(file, O_WRONLY | O_CREAT | O_APPEND, 0666));
  struct stat status {};
  if (out.get() < 0 || ::fstat(out.get(), &status) != 0) throw_write_error(file, lines.size());
  const std::int64_t size = status.st_size;
  kept = std::min(kept, size);  // the file is new, or another program has shortened it
  if ((size > kept && ::ftruncate(out.get(), kept) != 0) || !write_all(out.get(), lines) ||
      ::fdatasync(out.get()) != 0)
    throw_write_error(file, lines.size());
  if (kept == 0) sync_directory(file.parent_path());
  return kept + std::ssize(lines);
}

}  // namespace

RunHashes::RunHashes(const fs::path& output_dir, std::int64_t every, Group group,
                     std::int64_t virtual_ranks)
    : file_(output_dir / kHashChainFile),
      every_(every),
      group_(std::move(group)),
      previous_(first_hash()),
      rows_(static_cast<std::size_t>(virtual_ranks), first_hash()) {}

void RunHashes::start() {
  once(group_, writes(), [&] { remove_links_after(0); });
}

ResumedChain RunHashes::resume(std::int64_t step,
                               const std::optional<HashChainPosition>& position) {
  if (position) previous_ = position->previous;
  ResumedChain found;
  once(group_, writes(), [&] { found.damage = remove_links_after(step); });
  if (!position) return found;  // the run had no chain before
  const std::size_t first = static_cast<std::size_t>(group_.rank()) * rows_.size();
  for (std::size_t virtual_rank = 0; virtual_rank < rows_.size(); ++virtual_rank) {
    if (first + virtual_rank < position->rows.size())
      rows_[virtual_rank] = position->rows[first + virtual_rank];
  }
  found.begins_again = writes() && written_ == 0 && previous_ != first_hash();
  return found;
}

std::string RunHashes::remove_links_after(std::int64_t step) {
  std::error_code error;
  const bool exists = fs::exists(file_, error);
  if (error)
    throw IoError("io.open", {.what = "cannot find " + file_.string(), .got = error.message()});
  if (!exists) return "";
  std::string kept, damage;
  try {
    // A run that starts from the beginning does not read the old chain, which may be damaged.
    if (step > 0) kept = lines_until(step);
  } catch (const DataError& broken) {
    // The chain shows how the weights came about, but the run can continue without it.
    damage = set_aside_damaged("hash chain", file_, broken);
  }
  write_file_atomically(file_, kept);
  written_ = std::ssize(kept);
  return damage;
}

std::string RunHashes::lines_until(std::int64_t step) const {
  std::string lines, last;
  for (const HashLink& link : read_hash_chain(file_)) {
    if (link.step > step) break;
    lines += line_of(link) + '\n';
    last = hash_of(link);
  }
  // A run that ended before it could write its newest links has left a gap, and a chain with a gap
  // is not valid. So the file begins again, as it does in another folder.
  return last == previous_ ? lines : "";
}

void RunHashes::add_rows(AnyBatch batch, std::int64_t virtual_rank) {
  TensorDict tensors;
  visit_tensors(batch, [&](at::Tensor& tensor) {
    if (tensor.defined()) tensors[str(tensors.size())] = tensor;
  });
  std::string& rows = rows_[static_cast<std::size_t>(virtual_rank)];
  std::string text = rows;
  for (const auto& [place, hash] : tensor_hashes(tensors)) text += str(' ', place, ' ', hash);
  rows = sha256_of_text(text);
}

void RunHashes::add_link(std::int64_t step, double loss, const torch::nn::Module& module,
                         const torch::optim::Optimizer& optimizer,
                         const ParameterNames& parameters) {
  HashLink link{.step = step,
                .num_processes = group_.size() * std::ssize(rows_),
                .previous = previous_,
                .rows = sha256_of_text(join(position().rows, " ")),
                .loss = loss,
                .weights = {},
                .optimizer = {}};
  previous_ = broadcast_from_main(group_, [&] {
    link.weights = tensor_hashes(tensors_of(module).tensors);
    link.optimizer = tensor_hashes(optimizer_tensors(optimizer, parameters));
    return hash_of(link);
  });
  if (writes()) unwritten_ += line_of(link) + '\n';
  std::fill(rows_.begin(), rows_.end(), first_hash());
}

void RunHashes::write() {
  once(group_, writes(), [&] {
    if (unwritten_.empty()) return;
    written_ = append_synced(file_, written_, unwritten_);
    unwritten_.clear();
  });
}

HashChainPosition RunHashes::position() const {
  const auto joined = group_.gather_object(join(rows_, " "));
  return {.previous = previous_, .rows = split(join(joined, " "), ' ')};
}

}  // namespace hasten
