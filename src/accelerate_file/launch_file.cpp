#include "accelerate_file/launch_file.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "machine/installed_gpus.h"
#include "options/value.h"
#include "tpu/machine/installed_tpus.h"

namespace hasten::config {
namespace {

std::string document_scalar(const Document& value) {
  if (value.is_null()) return "null";
  if (!value.is_string()) return value.dump();
  return yaml_scalar(value.get<std::string>());
}

std::string inline_text(const Document& value) {
  if (value.is_array()) {
    std::vector<std::string> items;
    for (const Document& item : value) items.push_back(inline_text(item));
    return "[" + join(items, ", ") + "]";
  }
  if (value.is_object()) {
    std::vector<std::string> items;
    for (const auto& [key, item] : value.items())
      items.push_back(yaml_scalar(key) + ": " + inline_text(item));
    return "{" + join(items, ", ") + "}";
  }
  return document_scalar(value);
}

std::string yaml_lines(const Document& map, const std::string& indent) {
  std::string out;
  for (const auto& [key, value] : map.items()) {
    out += indent + yaml_scalar(key) + ":";
    if (value.is_object() && !value.empty()) {
      out += "\n" + yaml_lines(value, indent + "  ");
    } else {
      out += " " + inline_text(value) + "\n";
    }
  }
  return out;
}

// Returns the distributed_type that follows from the other values, as Accelerate writes it.
DistributedType kind_of(const LaunchFile& file) {
  if (file.tpu) return DistributedType::XLA;
  if (file.num_processes == 1) return DistributedType::NO;
  return file.use_cpu ? DistributedType::MULTI_CPU : DistributedType::MULTI_GPU;
}

// Accelerate's launch requires the first three keys; the others are written if they are set.
void add_tpu_keys(Document& out, const LaunchFile& file) {
  out["main_training_function"] = "main";
  out["tpu_use_cluster"] = false;
  out["tpu_use_sudo"] = false;
  if (file.downcast_bf16) out["downcast_bf16"] = true;
  if (!file.tpu_env.empty()) out["tpu_env"] = file.tpu_env;
  if (!file.tpu_name.empty()) out["tpu_name"] = file.tpu_name;
  if (!file.tpu_zone.empty()) out["tpu_zone"] = file.tpu_zone;
  if (!file.commands.empty()) out["commands"] = file.commands;
  if (!file.command_file.empty()) out["command_file"] = file.command_file;
}

Document document_of(const LaunchFile& file) {
  Document out;
  out["compute_environment"] = "LOCAL_MACHINE";
  out["distributed_type"] = name_of(kind_of(file));
  out["num_machines"] = file.num_machines;
  out["machine_rank"] = file.machine_rank;
  if (file.num_machines > 1) {
    out["main_process_ip"] = file.main_process_ip;
    out["main_process_port"] = file.main_process_port;
    out["rdzv_backend"] = file.rdzv_backend;
    out["same_network"] = file.same_network;
  }
  out["num_processes"] = file.num_processes;
  out["use_cpu"] = file.use_cpu && !file.tpu;
  if (!file.use_cpu && !file.tpu) out["gpu_ids"] = file.gpu_ids;
  out["enable_cpu_affinity"] = file.enable_cpu_affinity;
  out["mixed_precision"] = name_of(file.mixed_precision);
  out["debug"] = file.debug;
  if (file.tpu) add_tpu_keys(out, file);
  if (file.max_restarts != 0) out["max_restarts"] = file.max_restarts;
  if (!file.log_dir.empty()) out["log_dir"] = file.log_dir;
  return out;
}

}  // namespace

LaunchFile launch_file_for(std::size_t gpus, std::size_t tpus) {
  LaunchFile file;
  file.tpu = gpus == 0 && tpus > 0;
  file.use_cpu = gpus == 0 && tpus == 0;
  file.num_processes = std::max<std::int64_t>(1, static_cast<std::int64_t>(file.tpu ? tpus : gpus));
  return file;
}

std::vector<std::string> keys_unknown_to_accelerate(const LaunchFile& file) {
  std::vector<std::string> keys;
  if (file.max_restarts != 0) keys.emplace_back("max_restarts");
  if (!file.log_dir.empty()) keys.emplace_back("log_dir");
  return keys;
}

std::string document_text(const Document& document, bool json) {
  if (!json) return yaml_lines(document, "");
  return document.dump(2, ' ', false, Document::error_handler_t::replace) + "\n";
}

std::string launch_file_text(const LaunchFile& file, bool json) {
  const Document document = document_of(file);
  if (json) return document_text(document, json);
  std::string text = "# Read by `hasten launch` and by `accelerate launch`.\n";
  if (const auto own = keys_unknown_to_accelerate(file); !own.empty()) {
    text =
        "# Read by `hasten launch`. `accelerate launch` rejects this file:\n# it does not know " +
        join(own, ", ") + ".\n";
  }
  return text + document_text(document, json);
}

void write_launch_file(const std::string& path, const std::string& text) {
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  make_directories(folder);
  write_file_atomically(path, text);
}

}  // namespace hasten::config
