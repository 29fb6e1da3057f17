#include "hasten/formats/module_weights.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <map>
#include <regex>
#include <utility>

#include "formats/module_tensors.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

// True if `ending` is the whole name or consists of its last parts.
bool has_name_suffix(const std::string& name, const std::string& ending) {
  return name == ending || ends_with(name, "." + ending);
}

// Removes the buffers that are not part of the file. Throws if an entry matches no buffer, because
// it is probably misspelt.
void remove_buffers(ModuleTensors& own, const torch::nn::Module& module,
                    const std::vector<std::string>& non_persistent) {
  const auto buffers = module.named_buffers();
  for (const std::string& entry : non_persistent) {
    bool found = false;
    for (const auto& item : buffers) {
      if (!has_name_suffix(item.key(), entry)) continue;
      found = true;
      own.tensors.erase(item.key());
      own.aliases.erase(item.key());
      std::erase(own.order, item.key());
    }
    if (found) continue;
    throw UsageError("weights.no-buffer",
                     {.what = "non_persistent",
                      .got = "\"" + entry + "\"",
                      .expected = "the name of a buffer of the module, or its last parts",
                      .hint = buffers.is_empty() ? "the module has no buffers"
                                                 : "buffers: " + join(buffers.keys(), ", ")});
  }
}

// Everything that prevents the tensors of a file from being loaded.
struct WeightMismatches {
  std::vector<std::string> missing, unexpected, shapes, types, others;

  bool empty() const {
    return missing.empty() && unexpected.empty() && shapes.empty() && types.empty() &&
           others.empty();
  }

  std::string text() const {
    std::vector<std::string> parts;
    const auto add = [&](const char* title, const std::vector<std::string>& entries) {
      if (!entries.empty()) parts.push_back(title + join(entries, ", "));
    };
    add("missing in the file: ", missing);
    add("unexpected in the file: ", unexpected);
    add("of another shape: ", shapes);
    add("of another type: ", types);
    add("", others);
    return join(parts, "; ");
  }
};

bool is_equal(const at::Tensor& a, const at::Tensor& b) {
  return a.is_same(b) || (a.scalar_type() == b.scalar_type() && at::equal(a, b));
}

// Suggests a rename if the names of one side are the names of the other side with a prefix.
std::string hint_for(const WeightMismatches& mismatches) {
  const std::vector<std::string>&missing = mismatches.missing, &unexpected = mismatches.unexpected;
  if (!missing.empty() && missing.size() == unexpected.size()) {
    // Both lists are sorted by name, and a common prefix does not change the order.
    const auto prefix_of = [](std::string longer, const std::string& shorter) {
      if (!ends_with(longer, "." + shorter)) return std::string();
      longer.resize(longer.size() - shorter.size());
      return longer;
    };
    const auto common = [&](const auto& longer, const auto& shorter) {
      const std::string prefix = prefix_of(longer[0], shorter[0]);
      for (std::size_t i = 1; i < longer.size(); ++i)
        if (prefix_of(longer[i], shorter[i]) != prefix) return std::string();
      return prefix;
    };
    if (const std::string prefix = common(unexpected, missing); !prefix.empty())
      return "set rename = {replace_prefix(\"" + prefix + "\", \"\")}";
    if (const std::string prefix = common(missing, unexpected); !prefix.empty())
      return "set rename = {replace_prefix(\"\", \"" + prefix + "\")}";
  }
  if (!missing.empty() || !unexpected.empty())
    return "rename maps the file's names to the module's; strict = false accepts missing and "
           "unexpected names";
  if (mismatches.shapes.empty() && mismatches.others.empty())
    return "convert_dtype = true converts them";
  return "check that the file belongs to a module with the same configuration";
}

// Matches the tensors of a file to those of a module, and records what does not fit.
class TensorMatcher {
 public:
  TensorMatcher(const ModuleTensors& own, const TensorDict& file, const LoadModuleOptions& options)
      : own_(own), file_(file), options_(options) {
    for (const auto& [name, tensor] : file) match(name);
    for (const auto& [name, tensor] : own.tensors) {
      if (const auto found = sources_.find(name); found == sources_.end()) {
        mismatches_.missing.push_back(name);
      } else {
        check_pair(name, tensor, found->second);
      }
    }
    std::sort(mismatches_.unexpected.begin(), mismatches_.unexpected.end());
  }

  // Throws unless the tensors can be loaded.
  IncompatibleNames result(const std::string& where) {
    IncompatibleNames names;
    const bool tolerant = !options_.strict && (!sources_.empty() || own_.tensors.empty());
    if (tolerant) {
      names.missing = std::exchange(mismatches_.missing, {});
      names.unexpected = std::exchange(mismatches_.unexpected, {});
    }
    if (mismatches_.empty()) return names;
    throw DataError("weights.mismatch", {.what = where + " does not fit the module",
                                         .got = mismatches_.text(),
                                         .hint = hint_for(mismatches_)});
  }

  void copy() const {
    const at::NoGradGuard no_grad;
    for (const auto& [name, sources] : sources_) {
      at::Tensor target = own_.tensors.at(name);
      target.copy_(file_.at(sources.front()));
    }
  }

 private:
  void match(const std::string& file_name) {
    std::string name = file_name;
    for (const Rename& rename : options_.rename) name = rename(name);
    if (name.empty()) return;
    if (const auto [first, is_new] = renamed_.emplace(name, file_name); !is_new) {
      mismatches_.others.push_back(str(first->second, " and ", file_name, " both become ", name));
      return;
    }
    const std::string& saved = own_.saved_name(name);
    if (own_.tensors.contains(saved)) {
      sources_[saved].push_back(file_name);
    } else if (!is_non_persistent(name)) {
      mismatches_.unexpected.push_back(name);
    }
  }

  bool is_non_persistent(const std::string& name) const {
    return std::any_of(options_.non_persistent.begin(), options_.non_persistent.end(),
                       [&](const std::string& entry) { return has_name_suffix(name, entry); });
  }

  void check_pair(const std::string& name, const at::Tensor& target,
                  const std::vector<std::string>& sources) {
    const at::Tensor& source = file_.at(sources.front());
    if (source.sizes() != target.sizes()) {
      mismatches_.shapes.push_back(str(name, " (", shape_text(source.sizes()), " in the file, ",
                                       shape_text(target.sizes()), " in the module)"));
    } else if (!is_compatible_type(source.scalar_type(), target.scalar_type())) {
      mismatches_.types.push_back(str(name, " (", c10::toString(source.scalar_type()),
                                      " in the file, ", c10::toString(target.scalar_type()),
                                      " in the module)"));
    }
    for (const std::string& other : sources) {
      if (!is_equal(source, file_.at(other)))
        mismatches_.others.push_back(str(sources.front(), " and ", other,
                                         " differ in the file, but are one tensor in the module"));
    }
    if (target.is_meta()) mismatches_.others.push_back(name + " is on the Meta device");
    if (at::has_internal_overlap(target) == at::MemOverlap::Yes)
      mismatches_.others.push_back(name + " has several elements in one place of memory");
  }

  bool is_compatible_type(at::ScalarType source, at::ScalarType target) const {
    return source == target ||
           (options_.convert_dtype && source != at::ScalarType::Float4_e2m1fn_x2 &&
            target != at::ScalarType::Float4_e2m1fn_x2 && c10::canCast(source, target));
  }

  const ModuleTensors& own_;
  const TensorDict& file_;
  const LoadModuleOptions& options_;
  std::map<std::string, std::string> renamed_;               // new name -> name in the file
  std::map<std::string, std::vector<std::string>> sources_;  // saved name -> names in the file
  WeightMismatches mismatches_;
};

}  // namespace

Rename replace_prefix(std::string from, std::string to) {
  return [from = std::move(from), to = std::move(to)](const std::string& name) {
    return starts_with(name, from) ? to + name.substr(from.size()) : name;
  };
}

Rename replace_regex(const std::string& expression, std::string to) {
  try {
    return [regex = std::regex(expression), to = std::move(to)](const std::string& name) {
      return std::regex_replace(name, regex, to);
    };
  } catch (const std::regex_error& error) {
    throw UsageError("weights.regex", {.what = "replace_regex",
                                       .got = "\"" + expression + "\"",
                                       .expected = "a regular expression of ECMAScript",
                                       .hint = error.what()});
  }
}

void save_weights(const torch::nn::Module& module, const fs::path& file_or_folder,
                  const SaveModuleOptions& options) {
  ModuleTensors own = tensors_of(module);
  remove_buffers(own, module, options.non_persistent);
  SafetensorsMetadata metadata = options.metadata;
  for (const auto& [alias, name] : own.aliases) metadata.emplace(alias, name);
  if (file_or_folder.extension() == ".safetensors")
    return save_safetensors(file_or_folder, own.tensors, metadata);
  make_directories(file_or_folder);
  save_weights(
      file_or_folder, own.tensors,
      {.max_shard_size = options.max_shard_size, .order = own.order, .metadata = metadata});
}

IncompatibleNames load_weights(torch::nn::Module& module, const fs::path& file_or_folder,
                               const LoadModuleOptions& options) {
  ModuleTensors own = tensors_of(module);
  remove_buffers(own, module, options.non_persistent);
  const TensorDict file = load_weights(file_or_folder);
  TensorMatcher matcher(own, file, options);
  IncompatibleNames names = matcher.result(file_or_folder.string());
  matcher.copy();
  return names;
}

}  // namespace hasten
