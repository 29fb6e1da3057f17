// Prints the state of the process and of LibTorch that a library could change when it is loaded.
// This program does not call hasten. linking.py compares the output with and without hasten linked.
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/record_function.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <dlfcn.h>
#include <signal.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <clocale>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <typeinfo>
#include <vector>

extern char** environ;

namespace {

// Returns the name of the function or object at an address if its library exports it.
std::string name_at(const void* address) {
  if (address == nullptr) return "null";
  Dl_info info{};
  if (dladdr(address, &info) == 0) return "unknown";
  const std::string library = std::filesystem::path(info.dli_fname).filename();
  return library + ": " + (info.dli_sname == nullptr ? "unnamed" : info.dli_sname);
}

template <class T>
std::string type_of(const T* object) {
  return object == nullptr ? "null" : typeid(*object).name();
}

std::size_t count_entries(const char* folder) {
  const std::filesystem::directory_iterator entries(folder);
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

void print_process() {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
  std::sort(variables.begin(), variables.end());
  for (const std::string& each : variables) std::cout << "variable " << each << '\n';
  for (int number = 1; number < SIGRTMAX; ++number) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_DFL)
      std::cout << "signal " << number << " is handled\n";
  }
  std::cout << "terminate handler: " << name_at(reinterpret_cast<const void*>(std::get_terminate()))
            << '\n'
            << "threads: " << count_entries("/proc/self/task") << '\n'
            << "open files: " << count_entries("/proc/self/fd") << '\n'
            << "locale: " << std::setlocale(LC_ALL, nullptr) << '\n'
            << "folder: " << std::filesystem::current_path().string() << '\n';
}

void print_devices() {
  const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks();
  std::cout << "CUDA hooks: " << typeid(hooks).name() << '\n'
            << "CUDA: " << at::hasCUDA() << torch::cuda::is_available()
            << static_cast<int>(torch::cuda::device_count()) << '\n';
  for (int type = 0; type < c10::COMPILE_TIME_MAX_DEVICE_TYPES; ++type) {
    const auto* const guard =
        c10::impl::device_guard_impl_registry[static_cast<std::size_t>(type)].load();
    std::cout << "device " << type << ": guard " << type_of(guard) << '\n';
  }
  std::cout << "CPU allocator: " << type_of(c10::GetCPUAllocator()) << " of priority "
            << (c10::GetCPUAllocator() == c10::GetDefaultCPUAllocator()) << '\n'
            << "private device: " << c10::get_privateuse1_backend() << '\n';
}

void print_dispatch() {
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  std::cout << "included keys: " << toString(keys.included_) << '\n'
            << "excluded keys: " << toString(keys.excluded_) << '\n';
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  // hasten's operators are in a separate namespace, so this counts only the other operators.
  std::size_t others = 0;
  std::array<std::size_t, static_cast<std::size_t>(c10::DispatchKey::EndOfRuntimeBackendKeys) + 1>
      kernels{};
  for (const c10::OperatorName& each : dispatcher.getAllOpNames()) {
    if (each.name.compare(0, 8, "hasten::") == 0) continue;
    ++others;
    const auto found = dispatcher.findOp(each);
    for (std::size_t key = 1; found && key < kernels.size(); ++key)
      kernels[key] += found->hasKernelForDispatchKey(static_cast<c10::DispatchKey>(key));
  }
  std::cout << "operators of others: " << others << '\n';
  for (std::size_t key = 1; key < kernels.size(); ++key) {
    const auto name = static_cast<c10::DispatchKey>(key);
    std::cout << toString(name) << ": " << kernels[key] << " kernels, fallback "
              << dispatcher.hasBackendFallbackForDispatchKey(name) << '\n';
  }
  std::cout << "callbacks: " << at::hasCallbacks() << at::hasGlobalCallbacks() << '\n';
}

void print_autograd() {
  std::cout << "engine: " << type_of(&torch::autograd::Engine::get_default_engine()) << '\n'
            << "warning handler: " << type_of(c10::WarningUtils::get_warning_handler()) << '\n'
            << "default type: " << c10::toString(c10::get_default_dtype_as_scalartype()) << '\n'
            << "threads of operators: " << at::get_num_threads() << ", "
            << at::get_num_interop_threads() << '\n'
            << "deterministic: " << at::globalContext().deterministicAlgorithms() << '\n'
            << "autocast: " << at::autocast::is_autocast_enabled(at::kCPU) << '\n';
}

void print_step() {
  torch::manual_seed(1);
  torch::nn::Linear model(8, 4);
  torch::optim::AdamW optimizer(model->parameters());
  const at::Tensor loss = model(at::randn({16, 8})).square().mean();
  loss.backward();
  optimizer.step();
  std::cout << "step: " << loss.item<float>() << ' ' << model->weight.sum().item<float>() << '\n';
}

}  // namespace

int main() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("libhasten.so") == line.npos) continue;
    std::cout << "hasten is loaded\n";
    break;
  }
  print_process();
  print_devices();
  print_dispatch();
  print_autograd();
  print_step();
  return 3;
}
