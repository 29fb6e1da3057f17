// Implements the functions of an exported module that the Trainer calls (TrainingTraits).
#include <algorithm>

#include "exported/exported_parts.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/formats/module_weights.h"

namespace hasten {

std::int64_t ExportedModule::max_length() const {
  return parts_->programs.front()->user_inputs.largest_size("input_ids", 1).value_or(0);
}

std::optional<std::int64_t> ExportedModule::token_count(const TensorDict& batch) const {
  return tokens_in(batch);
}

std::optional<std::int64_t> ExportedModule::real_token_count(const TensorDict& batch) const {
  return real_tokens_in(batch);
}

std::int64_t ExportedModule::row_length(const TensorDict& batch) const {
  return row_length_in(batch);
}

// Counts six operations for each token and each parameter outside of the embedding tables.
std::optional<double> ExportedModule::floating_point_ops(const TensorDict& batch) const {
  const std::optional<std::int64_t> tokens = tokens_in(batch);
  if (!tokens) return std::nullopt;
  const std::set<std::string>& tables = parts_->programs.front()->embedding_tables;
  std::int64_t multiplied = 0;
  for (const auto& item : named_parameters())
    multiplied += tables.contains(item.key()) ? 0 : item.value().numel();
  return 6.0 * static_cast<double>(multiplied) * static_cast<double>(*tokens);
}

// The Hugging Face Trainer looks for modules torch.nn.LayerNorm. Here the operator identifies them.
std::optional<std::set<std::string>> ExportedModule::undecayed_parameters() const {
  const std::set<std::string>& norms = parts_->programs.front()->layer_norm_parameters;
  std::set<std::string> names;
  for (const auto& item : named_parameters())
    if (norms.contains(item.key()) || is_undecayed_name(item.key())) names.insert(item.key());
  return names;
}

bool ExportedModule::save_files(const std::filesystem::path& folder) const {
  make_directories(folder);
  save(folder / "trained.pt2");
  save_weights(folder);
  return true;
}

std::uintmax_t ExportedModule::other_file_bytes() const { return parts_->archive.bytes(); }

void ExportedModule::load_weights(const std::filesystem::path& file_or_folder) {
  copy_weights(file_or_folder, /*strict=*/true);
}

std::optional<std::vector<std::string>> ExportedModule::load_files(
    const std::filesystem::path& folder) {
  return copy_weights(folder, /*strict=*/false);
}

std::vector<std::string> ExportedModule::copy_weights(const std::filesystem::path& file_or_folder,
                                                      bool strict) {
  const TensorDict file = hasten::load_weights(file_or_folder);
  const auto in_file = [&](const auto& each) { return file.contains(each); };
  // The names of each tensor. A shared tensor has its registered name first.
  std::map<const void*, std::vector<std::string>> names;
  for (const auto& item : named_parameters())
    names[item.value().unsafeGetTensorImpl()] = {item.key()};
  for (const auto& item : named_buffers()) names[item.value().unsafeGetTensorImpl()] = {item.key()};
  std::set<std::string> known;
  for (const auto& [name, tensor] : tensors_) {
    const auto found = names.find(tensor.unsafeGetTensorImpl());
    if (found != names.end() && found->second.front() != name) found->second.push_back(name);
    known.insert(name);
  }
  std::vector<std::string> missing, unexpected;
  std::map<std::string, std::string> renamed;
  const TensorDict state = state_dict();
  for (const auto& [tensor, all] : names) {
    const auto found = std::find_if(all.begin(), all.end(), in_file);
    if (found != all.end())
      renamed[*found] = all.front();
    else if (state.contains(all.front()))
      missing.push_back(all.front());
  }
  for (const auto& [name, tensor] : file)
    if (!known.contains(name)) unexpected.push_back(name);
  if (strict && !(missing.empty() && unexpected.empty()))
    throw DataError(
        "weights.mismatch",
        {.what = file_or_folder.string() + " does not fit " + parts_->archive.file(),
         .got = str("missing: ", join(missing, ", "), "; unexpected: ", join(unexpected, ", ")),
         .expected = "the tensors of the exported model"});
  const Rename rename = [&](const std::string& name) {
    const auto found = renamed.find(name);
    return found == renamed.end() ? "" : found->second;
  };
  hasten::load_weights(*this, file_or_folder, {.strict = false, .rename = {rename}});
  return missing;
}

}  // namespace hasten
