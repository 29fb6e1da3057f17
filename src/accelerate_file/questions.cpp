#include "accelerate_file/questions.h"

#include <algorithm>
#include <cstdint>

#include "base/parse_number.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/value.h"

namespace hasten::config {
namespace {

constexpr std::int64_t kMaxProcesses = 4096;  // launch's limit
constexpr std::int64_t kMaxPort = 65535;

// One question. `read` returns the value of an answer, or nothing if the answer is invalid;
// `expected` describes a valid one.
template <class T>
struct Question {
  std::string text;
  T default_value;
  std::string shown;  // the default, as a person would type it
  std::function<std::optional<T>(const std::string&)> read;
  std::string expected;
};

// Asks until the answer is valid.
template <class T>
T ask(const Question<T>& question, const Prompter& prompter) {
  while (true) {
    prompter.print(question.text +
                   (question.shown.empty() ? " " : str(" [", question.shown, "] ")));
    const auto line = prompter.read_line();
    if (!line) {
      prompter.print("\n");
      throw ConfigError("config.no-answer",
                        {.what = "no answer to '" + question.text + "'",
                         .hint = "hasten config default writes a file without questions"});
    }
    const std::string answer(trim(*line));
    if (answer.empty() && !question.shown.empty()) return question.default_value;
    if (const auto value = question.read(answer)) return *value;
    prompter.print(str("  got '", answer, "', expected ", question.expected, "\n"));
  }
}

std::int64_t ask_number(const std::string& text, std::int64_t default_value, std::int64_t minimum,
                        std::int64_t maximum, const Prompter& prompter, std::int64_t step = 1) {
  const auto read = [&](const std::string& answer) -> std::optional<std::int64_t> {
    const auto number = parse_integer(answer);
    const bool fits = number && *number >= minimum && *number <= maximum && *number % step == 0;
    return fits ? number : std::nullopt;
  };
  const std::string expected = str("a whole number in [", minimum, ", ", maximum, "]",
                                   step > 1 ? str(", a multiple of ", step) : "");
  return ask<std::int64_t>({text, default_value, str(default_value), read, expected}, prompter);
}

bool ask_flag(const std::string& text, bool default_value, const Prompter& prompter) {
  return ask<bool>(
      {text + " (yes, no)", default_value, default_value ? "yes" : "no", parse_bool, "yes or no"},
      prompter);
}

// Asks for one of the choices. The user answers with its word or its number in the list.
std::string ask_choice(const std::string& text, const std::vector<std::string>& choices,
                       const std::string& default_value, const Prompter& prompter) {
  const auto read = [&](const std::string& answer) -> std::optional<std::string> {
    if (std::find(choices.begin(), choices.end(), lower(answer)) != choices.end())
      return lower(answer);
    const auto number = parse_integer(answer);
    const bool in_list =
        number && *number >= 1 && *number <= static_cast<std::int64_t>(choices.size());
    return in_list ? std::optional(choices[static_cast<std::size_t>(*number - 1)]) : std::nullopt;
  };
  std::vector<std::string> numbered;
  for (const std::string& choice : choices)
    numbered.push_back(str(numbered.size() + 1, ": ", choice));
  return ask<std::string>({str(text, " (", join(numbered, ", "), ")"), default_value, default_value,
                           read, "one of " + join(choices, ", ") + ", or its number"},
                          prompter);
}

std::string ask_text(const std::string& text, const std::string& default_value,
                     const std::string& expected,
                     const std::function<bool(const std::string&)>& fits,
                     const Prompter& prompter) {
  const auto read = [&](const std::string& answer) {
    return fits(answer) ? std::optional(answer) : std::nullopt;
  };
  return ask<std::string>({text, default_value, default_value, read, expected}, prompter);
}

bool is_host(const std::string& answer) {
  return !answer.empty() && std::none_of(answer.begin(), answer.end(), [](unsigned char character) {
    return character <= ' ' || character == '/' || character == 0x7f;
  });
}

// True for "all", and for a list of GPU numbers without repetitions.
bool is_gpu_list(const std::string& answer) {
  if (answer == "all") return true;
  std::vector<std::uint32_t> seen;
  for (const std::string& word : split(answer, ',')) {
    const auto number = parse_number<std::uint32_t>(word);
    if (!number || std::find(seen.begin(), seen.end(), *number) != seen.end()) return false;
    seen.push_back(*number);
  }
  return true;
}

void ask_machines(LaunchFile& file, const Prompter& prompter) {
  file.num_machines =
      ask_number("How many machines?", file.num_machines, 1, kMaxProcesses, prompter);
  if (file.num_machines == 1) return;
  file.machine_rank = ask_number("What is the rank of this machine (0: the main one)?",
                                 file.machine_rank, 0, file.num_machines - 1, prompter);
  file.main_process_ip =
      ask_text("What is the address of the main machine?", file.main_process_ip,
               "a name or an address that the other machines can reach", is_host, prompter);
  file.main_process_port =
      ask_number("Which port does it use?", file.main_process_port, 1, kMaxPort, prompter);
  file.rdzv_backend =
      ask_choice("Which rendezvous backend?", {"static", "c10d"}, file.rdzv_backend, prompter);
  file.same_network =
      ask_flag("Are all machines in one network, where they can reach each other by name?",
               file.same_network, prompter);
}

// Asks for a text. The answer "none" becomes an empty text.
std::string ask_optional(const std::string& text, const std::string& default_value,
                         const std::string& expected, const Prompter& prompter) {
  const auto anything = [](const std::string&) { return true; };
  const std::string answer =
      ask_text(text, default_value.empty() ? "none" : default_value, expected, anything, prompter);
  return answer == "none" ? "" : answer;
}

bool is_variable(const std::string& text) {
  const auto equals = text.find('=');
  return equals != std::string::npos && equals > 0 && text.find(' ') > equals;
}

void ask_variables(LaunchFile& file, const Prompter& prompter) {
  const auto are_variables = [](const std::string& answer) {
    const std::vector<std::string> all = split(answer, ',');
    return answer == "none" || std::all_of(all.begin(), all.end(), is_variable);
  };
  const std::string answer =
      ask_text("Which variables does each process get (NAME=value, separated by commas)?",
               file.tpu_env.empty() ? "none" : join(file.tpu_env, ","),
               "none, or NAME=value separated by commas", are_variables, prompter);
  file.tpu_env = answer == "none" ? std::vector<std::string>{} : split(answer, ',');
}

// Asks for what hasten tpu-config runs on all machines of a pod.
void ask_pod(LaunchFile& file, const Prompter& prompter) {
  if (!ask_flag("Is it a pod on whose machines hasten tpu-config should run commands?",
                !file.tpu_name.empty(), prompter)) {
    file.tpu_name = file.tpu_zone = file.command_file = "";
    file.commands.clear();
    return;
  }
  const std::string name = "a name without spaces";
  file.tpu_name = ask_text("What is the name of the TPU?", file.tpu_name, name, is_host, prompter);
  file.tpu_zone = ask_text("What is its zone?", file.tpu_zone, name, is_host, prompter);
  file.command_file =
      ask_optional("Which file has the commands?", file.command_file, "a file", prompter);
  file.commands.clear();
  while (file.command_file.empty()) {
    const std::string command = ask_optional(
        file.commands.empty() ? "Which command?" : "Another command?", "", "a command", prompter);
    if (command.empty()) break;
    file.commands.push_back(command);
  }
}

void ask_processes_on_tpus(LaunchFile& file, std::size_t tpus, const Prompter& prompter) {
  constexpr std::int64_t unknown = 8;  // Accelerate's default
  const std::int64_t each = tpus == 0 ? unknown : static_cast<std::int64_t>(tpus);
  file.num_processes =
      ask_number("How many processes (one for each TPU chip)?", each * file.num_machines,
                 file.num_machines, kMaxProcesses * file.num_machines, prompter, file.num_machines);
  ask_variables(file, prompter);
  ask_pod(file, prompter);
}

void ask_processes(LaunchFile& file, std::size_t gpus, const Prompter& prompter) {
  if (!file.use_cpu)
    file.gpu_ids =
        ask_text("Which GPUs (all, or numbers separated by commas)?", file.gpu_ids,
                 "all, or numbers separated by commas, such as 0,1", is_gpu_list, prompter);
  std::int64_t each = 1;  // processes per machine
  if (!file.use_cpu) {
    each = file.gpu_ids == "all" ? static_cast<std::int64_t>(gpus)
                                 : static_cast<std::int64_t>(split(file.gpu_ids, ',').size());
  }
  const std::int64_t in_all = std::max<std::int64_t>(1, each) * file.num_machines;
  file.num_processes = ask_number(
      file.num_machines > 1 ? "How many processes, on all machines together?"
                            : "How many processes?",
      in_all, file.num_machines, kMaxProcesses * file.num_machines, prompter, file.num_machines);
}

}  // namespace

LaunchFile ask_launch_file(LaunchFile file, std::size_t gpus, std::size_t tpus,
                           const Prompter& prompter) {
  ask_machines(file, prompter);
  file.use_cpu = ask_flag("Use the CPU only?", file.use_cpu, prompter);
  file.tpu = !file.use_cpu && ask_flag("Use TPUs?", file.tpu, prompter);
  if (file.tpu) {
    ask_processes_on_tpus(file, tpus, prompter);
  } else {
    ask_processes(file, gpus, prompter);
  }
  file.enable_cpu_affinity =
      ask_flag("Bind each process to its own cores?", file.enable_cpu_affinity, prompter);
  const std::string precision = ask_choice("Mixed precision?", {"no", "fp16", "bf16"},
                                           std::string(name_of(file.mixed_precision)), prompter);
  file.mixed_precision = *from_name<Precision>(precision);
  file.downcast_bf16 =
      file.tpu && file.mixed_precision == Precision::bf16 &&
      ask_flag("Compute double as float instead of bf16?", file.downcast_bf16, prompter);
  file.debug = ask_flag("Check collectives before they run (slow)?", file.debug, prompter);
  file.max_restarts = ask_number("How many times may all processes restart after a failure?",
                                 file.max_restarts, 0, 1000000, prompter);
  file.log_dir = ask_optional("Which folder gets the output of each process?", file.log_dir,
                              "a folder", prompter);
  return file;
}

bool ask_yes_no(const std::string& question, bool default_value, const Prompter& prompter) {
  return ask_flag(question, default_value, prompter);
}

}  // namespace hasten::config
