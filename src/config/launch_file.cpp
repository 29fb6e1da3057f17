#include "hasten/config/launch_file.h"

#include <filesystem>

#include "config/config_file_writer.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/config/installed_gpus.h"

namespace hasten::config {
namespace {

// As Accelerate calls what follows from the rest.
DistributedType kind_of(const LaunchFile& file) {
  if (file.num_processes == 1) return DistributedType::NO;
  return file.use_cpu ? DistributedType::MULTI_CPU : DistributedType::MULTI_GPU;
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
  out["use_cpu"] = file.use_cpu;
  if (!file.use_cpu) out["gpu_ids"] = file.gpu_ids;
  out["enable_cpu_affinity"] = file.enable_cpu_affinity;
  out["mixed_precision"] = name_of(file.mixed_precision);
  out["debug"] = file.debug;
  if (file.max_restarts != 0) out["max_restarts"] = file.max_restarts;
  if (!file.log_dir.empty()) out["log_dir"] = file.log_dir;
  return out;
}

}  // namespace

LaunchFile launch_file_here() {
  const auto gpus = static_cast<std::int64_t>(installed_gpus().size());
  LaunchFile file;
  file.use_cpu = gpus == 0;
  file.num_processes = gpus == 0 ? 1 : gpus;
  return file;
}

std::vector<std::string> own_keys(const LaunchFile& file) {
  std::vector<std::string> keys;
  if (file.max_restarts != 0) keys.emplace_back("max_restarts");
  if (!file.log_dir.empty()) keys.emplace_back("log_dir");
  return keys;
}

std::string launch_file_text(const LaunchFile& file, bool json) {
  const Document document = document_of(file);
  if (json) return json_text(document);
  std::string text = "# Read by `hasten launch` and by `accelerate launch`.\n";
  if (const auto own = own_keys(file); !own.empty()) {
    text = "# Read by `hasten launch`; `accelerate launch` does not know " + join(own, ", ") +
           " and refuses the file\n# until that is taken out.\n";
  }
  return text + yaml_text(document);
}

void write_launch_file(const std::string& path, const std::string& text) {
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  make_directories(folder);
  write_file_atomically(path, text);
}

}  // namespace hasten::config
