// Finds the first step and tensor in which two runs differ.
#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "formats/safetensors_header.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/hash_chain.h"
#include "hasten/formats/safetensors.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

std::string tensor_text(const std::string& name, const std::string& of) {
  return str("tensor ", safetensors::quoted(name), " of ", of);
}

// Adds the tensors that have different hashes, or that only one of the two checkpoints has.
void add_differences(const TensorHashes& a, const TensorHashes& b, const std::string& of,
                     std::vector<std::string>& parts) {
  std::set<std::string> names;
  for (const TensorHashes* each : {&a, &b})
    for (const auto& [name, hash] : *each) names.insert(name);
  for (const std::string& name : names) {
    const auto in_a = a.find(name), in_b = b.find(name);
    if (in_a == a.end() || in_b == b.end() || in_a->second != in_b->second)
      parts.push_back(tensor_text(name, of));
  }
}

using HashLinks = std::map<std::int64_t, HashLink>;

// Returns the step of the link before this one: 0 if the chain begins with this link, and nothing
// if the file lacks the link before, because the chain continues that of another folder. A run that
// was resumed without a chain also counts from 0, so its first rows are compared only with those of
// a link that has no other before it.
std::optional<std::int64_t> step_of_previous_link(const HashLinks& links,
                                                  HashLinks::const_iterator link) {
  if (link->second.previous == first_hash()) return 0;
  if (link == links.begin()) return std::nullopt;
  return std::prev(link)->first;
}

// False if the hashes of rows at this step cover different steps, because the runs were hashed at
// different intervals.
bool are_rows_comparable(const HashLinks& a, const HashLinks& b, std::int64_t step) {
  const auto before_a = step_of_previous_link(a, a.find(step)),
             before_b = step_of_previous_link(b, b.find(step));
  return !before_a || !before_b || *before_a == *before_b;
}

std::vector<std::string> different_parts(const HashLinks& links_a, const HashLinks& links_b,
                                         std::int64_t step) {
  const HashLink &a = links_a.at(step), &b = links_b.at(step);
  std::vector<std::string> parts;
  if (a.rows != b.rows && are_rows_comparable(links_a, links_b, step))
    parts.push_back("the rows since the link before");
  if (std::bit_cast<std::uint64_t>(a.loss) != std::bit_cast<std::uint64_t>(b.loss))
    parts.push_back("the loss");
  add_differences(a.weights, b.weights, "the weights", parts);
  add_differences(a.optimizer, b.optimizer, "the optimizer", parts);
  if (a.num_processes != b.num_processes) parts.push_back("the number of processes");
  return parts;
}

// Returns the names of files with tensors that determine how a run continues.
std::set<std::string> state_files(const fs::path& checkpoint) {
  std::set<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoint, error)) {
    const std::string name = entry.path().filename().string();
    if (ends_with(name, ".safetensors")) names.insert(name);
  }
  return names;
}

bool is_same(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

// Compares the tensors of two checkpoints, file by file: weights before the optimizer's state.
std::vector<std::string> different_tensors(const fs::path& a, const fs::path& b) {
  std::vector<std::string> parts;
  std::set<std::string> files = state_files(a);
  files.merge(state_files(b));
  for (const std::string& file : files) {
    std::error_code error;
    if (!fs::exists(a / file, error) || !fs::exists(b / file, error)) {
      parts.push_back("the file " + file);
      continue;
    }
    const SafetensorsFile in_a(a / file), in_b(b / file);
    std::set<std::string> names(in_a.names().begin(), in_a.names().end());
    names.insert(in_b.names().begin(), in_b.names().end());
    for (const std::string& name : names) {
      if (!in_a.contains(name) || !in_b.contains(name) ||
          !is_same(in_a.tensor(name), in_b.tensor(name)))
        parts.push_back(tensor_text(name, file));
    }
  }
  return parts;
}

HashLinks links_of(const fs::path& run) {
  HashLinks links;
  std::error_code error;
  if (!fs::exists(run / kHashChainFile, error)) return links;
  for (HashLink& link : read_hash_chain(run / kHashChainFile)) links[link.step] = std::move(link);
  return links;
}

// The checkpoints of a Trainer's output_dir, or of an Accelerator's project, by their numbers.
std::map<std::int64_t, fs::path> checkpoints_of_run(const fs::path& run) {
  std::map<std::int64_t, fs::path> found;
  for (const fs::path& folder : checkpoints(run)) found[step_of_checkpoint(folder)] = folder;
  for (const fs::path& folder : checkpoints(run / "checkpoints", kProjectPrefix))
    found[step_of_checkpoint(folder, kProjectPrefix)] = folder;
  return found;
}

}  // namespace

RunComparison compare_runs(const fs::path& a, const fs::path& b, std::int64_t from) {
  const auto links_a = links_of(a), links_b = links_of(b);
  const auto saved_a = checkpoints_of_run(a), saved_b = checkpoints_of_run(b);
  std::set<std::int64_t> steps;
  for (const auto& [step, link] : links_a)
    if (step >= from && links_b.contains(step)) steps.insert(step);
  for (const auto& [step, folder] : saved_a)
    if (step >= from && saved_b.contains(step)) steps.insert(step);
  if (steps.empty()) {
    throw DataError("checkpoint.nothing-in-common",
                    {.what = str(a.string(), " and ", b.string()),
                     .got = str("no common step from step ", from, " on"),
                     .expected = "a step for which both have a checkpoint or a hash",
                     .hint = "train with --hash_chain_steps, or save checkpoints at equal steps"});
  }
  RunComparison result;
  for (const std::int64_t step : steps) {
    std::vector<std::string> parts;
    const bool has_links = links_a.contains(step) && links_b.contains(step);
    const bool is_saved = saved_a.contains(step) && saved_b.contains(step);
    if (has_links) parts = different_parts(links_a, links_b, step);
    if (parts.empty() && is_saved) parts = different_tensors(saved_a.at(step), saved_b.at(step));
    if (!parts.empty()) {
      result.difference = {.step = step, .part = parts.front(), .other_parts = parts.size() - 1};
      return result;
    }
    result.links += has_links ? 1 : 0;
    result.checkpoints += is_saved ? 1 : 0;
    result.last_step = step;
  }
  return result;
}

}  // namespace hasten
