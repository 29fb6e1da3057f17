#include "trainer/run_hashes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <set>
#include <system_error>

#include "base/descriptor.h"
#include "base/file_calls.h"
#include "base/sha256.h"
#include "checkpoint/damaged_checkpoint.h"
#include "checkpoint/hash_chain_lines.h"
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

using Links = std::vector<const HashLink*>;
using LinksByHash = std::map<std::string, const HashLink*>;

// Returns the links up to the one with this hash, in order. Empty if there is no such link.
Links links_until(const LinksByHash& links, const std::string& last) {
  Links found;
  for (auto link = links.find(last); link != links.end(); link = links.find(link->second->previous))
    found.push_back(link->second);
  std::reverse(found.begin(), found.end());
  return found;
}

std::string lines_of(const Links& links) {
  std::string lines;
  for (const HashLink* const link : links) lines += line_of(*link) + '\n';
  return lines;
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
  once(group_, writes(), [&] {
    if (path_exists(file_)) write_file_atomically(file_, "");
    std::error_code ignored;  // links that remain there do not belong to the new chain
    fs::remove(abandoned_file(), ignored);
  });
}

ResumedChain RunHashes::resume(std::int64_t step,
                               const std::optional<HashChainPosition>& position) {
  if (position) previous_ = position->previous;
  ResumedChain found;
  once(group_, writes(), [&] { found.damage = restore_links(step); });
  if (!position) return found;  // the run had no chain before
  const std::size_t first = static_cast<std::size_t>(group_.rank()) * rows_.size();
  for (std::size_t virtual_rank = 0; virtual_rank < rows_.size(); ++virtual_rank) {
    if (first + virtual_rank < position->rows.size())
      rows_[virtual_rank] = position->rows[first + virtual_rank];
  }
  found.begins_again = writes() && written_ == 0 && previous_ != first_hash();
  return found;
}

std::string RunHashes::restore_links(std::int64_t step) {
  const bool has_chain = path_exists(file_), has_abandoned = path_exists(abandoned_file());
  if (!has_chain && !has_abandoned) return "";
  HashChain own, abandoned;
  std::string damage;
  try {
    if (has_chain) own = read_hash_chain(file_);
    if (has_abandoned) abandoned = intact_links(abandoned_file());
  } catch (const DataError& broken) {
    // The chain shows how the weights came about, but the run can continue without it.
    damage = set_aside_damaged("hash chain", file_, broken);
  }
  const std::string kept = split_links(own, abandoned, step);
  if (has_chain || !kept.empty()) write_file_atomically(file_, kept);
  written_ = std::ssize(kept);
  return damage;
}

std::string RunHashes::split_links(const HashChain& own, const HashChain& abandoned,
                                   std::int64_t step) const {
  LinksByHash all;
  Links before, removed;
  for (const HashLink& link : abandoned) {
    if (all.emplace(hash_of(link), &link).second) before.push_back(&link);
  }
  for (const HashLink& link : own) {
    if (all.emplace(hash_of(link), &link).second) removed.push_back(&link);
  }
  // A run that ended before it could write its newest links has left a gap, and a chain with a gap
  // is not valid. So the file begins again, as it does in another folder.
  Links kept = links_until(all, previous_);
  if (!kept.empty() && kept.back()->step > step) kept.clear();
  const std::set<const HashLink*> remains(kept.begin(), kept.end());
  std::erase_if(removed, [&](const HashLink* link) { return remains.count(link) > 0; });
  // The abandoned file comes first, so that no link is lost if the process is killed here.
  if (!removed.empty())
    write_file_atomically(abandoned_file(), lines_of(before) + lines_of(removed));
  return lines_of(kept);
}

fs::path RunHashes::abandoned_file() const {
  return file_.parent_path() / str("abandoned-", kHashChainFile);
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
