#include "env_facts.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include "base/environment_variable.h"
#include "base/first_line.h"
#include "base/parse_number.h"
#include "exec_torch.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/launch/slurm_script.h"
#include "hasten/options/detail/environment.h"
#include "launch/programs.h"
#include "libtorch_location.h"
#include "machine/cpu_instructions.h"
#include "machine/installed_gpus.h"
#include "options/sources.h"
#include "tpu/machine/installed_tpus.h"

namespace hasten::cli {
namespace {

namespace fs = std::filesystem;
using Facts = nlohmann::ordered_json;

// Returns the value of a key in a file of lines "key SEPARATOR value", or "" if there is none.
std::string value_in(const char* path, const std::string& key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto at = line.find(separator);
    if (at == std::string::npos || trim(line.substr(0, at)) != key) continue;
    std::string value(trim(line.substr(at + 1)));
    if (value.size() > 1 && value.front() == '"' && value.back() == '"')
      value = value.substr(1, value.size() - 2);
    return value;
  }
  return "";
}

std::string compiler() {
#if defined(__clang__)
  const std::string name = "Clang " __clang_version__;
#elif defined(__GNUC__)
  const std::string name = "GCC " __VERSION__;
#else
  const std::string name = "unknown";
#endif
  return str(std::string(trim(name)), ", C++", __cplusplus / 100 % 100);
}

Facts libtorch() {
  std::string program;
  try {
    program = torch_program();
  } catch (const IoError&) {
    // If hasten-torch is missing, the search leaves out the folders that its file lists.
  }
  const LibTorchLocation here = find_libtorch(program);
  return {{"version", here.version}, {"folder", here.folder.empty() ? "not found" : here.folder}};
}

Facts platform() {
  utsname names{};
  uname(&names);
  const std::string system = value_in("/etc/os-release", "PRETTY_NAME", '=');
  Facts facts = {{"kernel", str(names.sysname, " ", names.release, " ", names.machine)}};
  if (!system.empty()) facts["system"] = system;
  return facts;
}

// Returns the CPU's instruction sets among those for which hasten or LibTorch has its own kernels.
std::vector<std::string> instruction_sets() {
  return cpu_instructions_among({"avx", "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16",
                                 "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"});
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  return CPU_COUNT(&set);
}

Facts cpu() {
  return {{"model", value_in("/proc/cpuinfo", "model name", ':')},
          {"cores", sysconf(_SC_NPROCESSORS_ONLN)},
          {"cores_for_this_process", usable_cores()},
          {"instruction_sets", instruction_sets()}};
}

std::string memory() {
  const std::string text = value_in("/proc/meminfo", "MemTotal", ':');
  const auto kib = parse_number<std::int64_t>(std::string_view(text).substr(0, text.find(' ')));
  return kib ? human_bytes(*kib * 1024) : "unknown";
}

Facts numa_nodes() {
  std::error_code error;
  std::vector<std::pair<int, fs::path>> nodes;
  for (const auto& entry : fs::directory_iterator("/sys/devices/system/node", error)) {
    const std::string name = entry.path().filename().string();
    if (!starts_with(name, "node")) continue;
    if (const auto number = parse_number<int>(std::string_view(name).substr(4)))
      nodes.emplace_back(*number, entry.path());
  }
  std::sort(nodes.begin(), nodes.end());
  Facts facts = Facts::object();
  for (const auto& [number, folder] : nodes)
    facts[str("node", number)] = "cores " + first_line(folder / "cpulist");
  return facts;
}

// Returns the version of NVIDIA's driver, such as "550.54.14", or "" if there is none.
std::string driver() {
  for (const std::string& word : split(first_line("/proc/driver/nvidia/version"), ' ')) {
    if (!word.empty() && word.find_first_not_of("0123456789.") == std::string::npos &&
        word.find('.') != std::string::npos)
      return word;
  }
  return "";
}

Facts gpus() {
  Facts facts = Facts::object();
  int number = 0;
  for (const std::string& model : config::installed_gpus())
    facts[str("gpu", number++)] = model.empty() ? "unknown model" : model;
  if (const std::string version = driver(); !version.empty()) facts["driver"] = version;
  return facts;
}

// Returns the folders in which device `tpu` looks for its Python packages: next to LibTorch, in the
// active virtual environment, and in PYTHONPATH.
std::vector<fs::path> package_folders(const fs::path& libtorch) {
  std::vector<fs::path> folders = {libtorch.parent_path()};
  std::error_code error;
  const fs::path active = environment_variable("VIRTUAL_ENV");
  for (const auto& entry : fs::directory_iterator(active / "lib", error))
    folders.push_back(entry.path() / "site-packages");
  for (const std::string& folder : split(environment_variable("PYTHONPATH"), ':')) {
    if (!folder.empty()) folders.emplace_back(folder);
  }
  return folders;
}

// Reads the version from the name of the folder NAME-VERSION.dist-info that an installer leaves.
std::string package_version(const std::vector<fs::path>& folders, const std::string& name) {
  const std::string begin = name + "-", end = ".dist-info";
  for (const fs::path& folder : folders) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      const std::string file = entry.path().filename().string();
      if (starts_with(file, begin) && ends_with(file, end))
        return file.substr(begin.size(), file.size() - begin.size() - end.size());
    }
  }
  return "not found";
}

// Returns the chips, and the packages that are needed to use them.
Facts tpus(const std::string& libtorch) {
  Facts facts = Facts::object();
  int number = 0;
  for (const std::string& generation : config::installed_tpus())
    facts[str("tpu", number++)] = "TPU " + generation;
  const std::vector<fs::path> folders = package_folders(libtorch);
  for (const char* name : {"torch_tpu", "libtpu"}) facts[name] = package_version(folders, name);
  return facts;
}

// Returns the interfaces that are up, with their addresses.
Facts network() {
  Facts facts = Facts::object();
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return facts;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(raw, freeifaddrs);
  for (const ifaddrs* at = all.get(); at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    char text[INET6_ADDRSTRLEN] = "";
    const int family = at->ifa_addr->sa_family;
    if (family == AF_INET) {
      inet_ntop(family, &reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr, text,
                sizeof text);
    } else if (family == AF_INET6) {
      inet_ntop(family, &reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr, text,
                sizeof text);
    } else {
      continue;
    }
    facts[at->ifa_name].push_back(text);
  }
  return facts;
}

// Returns the first line that `program --version` prints within five seconds.
std::string version_of(const std::string& program) {
  const std::string command =
      "timeout 5 " + shell_word(program) + " --version 2>/dev/null </dev/null";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  char line[256] = "";
  if (pipe == nullptr || std::fgets(line, sizeof line, pipe.get()) == nullptr) return "";
  return std::string(trim(line));
}

// Returns the other programs that start processes as hasten launch does.
Facts launchers() {
  Facts facts = Facts::object();
  for (const char* program : {"mpirun", "srun"}) {
    const std::string path = find_in_path(program);
    if (path.empty()) {
      facts[program] = "not in PATH";
      continue;
    }
    const std::string version = version_of(program);
    facts[program] = version.empty() ? path : str(version, " (", path, ")");
  }
  return facts;
}

bool is_launch_variable(const std::string& name) {
  static const std::set<std::string> names = {"RANK",
                                              "LOCAL_RANK",
                                              "WORLD_SIZE",
                                              "LOCAL_WORLD_SIZE",
                                              "GROUP_RANK",
                                              "NODE_RANK",
                                              "MASTER_ADDR",
                                              "MASTER_PORT",
                                              "OMP_NUM_THREADS",
                                              "MKL_NUM_THREADS",
                                              "KMP_AFFINITY",
                                              "KMP_BLOCKTIME",
                                              "CUDA_VISIBLE_DEVICES",
                                              "LD_LIBRARY_PATH",
                                              "LD_PRELOAD"};
  if (names.count(name) > 0) return true;
  const std::vector<std::string> prefixes = {
      "SLURM_",   "OMPI_",   "PMI_", "PMIX_",   "NCCL_", "GLOO_",      "TORCH",     "ACCELERATE_",
      "PYTORCH_", "HASTEN_", "TPU_", "LIBTPU_", "XLA_",  "CLOUD_TPU_", "MEGASCALE_"};
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const std::string& prefix) { return starts_with(name, prefix); });
}

bool is_secret_name(const std::string& name) {
  const std::vector<std::string> words = {"TOKEN",    "SECRET", "KEY",
                                          "PASSWORD", "JWT",    "CREDENTIAL"};
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return name.find(word) != std::string::npos; });
}

Facts variables() {
  std::vector<std::pair<std::string, std::string>> all;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = text.substr(0, equals);
    if (is_launch_variable(name) && !is_secret_name(name))
      all.emplace_back(name, text.substr(equals + 1));
  }
  std::sort(all.begin(), all.end());
  Facts facts = Facts::object();
  for (const auto& [name, value] : all) facts[name] = value;
  return facts;
}

Facts configuration(const std::string& file, bool named) {
  if (file.empty()) return "none found";
  Facts facts = {{"file", file}};
  try {
    for (const config::Assignment& assignment : config::read_option_file(file))
      facts[assignment.key] = config::to_text(assignment.value);
  } catch (const Error& error) {
    if (named) throw;
    facts["error"] = error.what();
  }
  return facts;
}

}  // namespace

Facts env_facts(const std::string& config_file, bool named) {
  Facts facts;
  facts["hasten"] = HASTEN_VERSION;
  facts["compiler"] = compiler();
  facts["libtorch"] = libtorch();
  facts["platform"] = platform();
  facts["cpu"] = cpu();
  facts["memory"] = memory();
  facts["numa"] = numa_nodes();
  facts["gpus"] = gpus();
  facts["tpus"] = tpus(facts["libtorch"]["folder"].get<std::string>());
  facts["network"] = network();
  facts["launchers"] = launchers();
  facts["environment"] = variables();
  facts["configuration"] = configuration(config_file, named);
  return facts;
}

}  // namespace hasten::cli
