// Tests the questions of hasten config: the file that the answers produce, and the questions that
// are repeated.
#include "accelerate_file/questions.h"

#include "hasten/base/text.h"
#include "unit/options/support.h"

namespace accelerate_file_questions_test {

using namespace hasten;
using test::contains;

namespace {

// Scripted answers and the printed text.
struct ScriptedUser {
  std::vector<std::string> answers;
  std::string printed;
  std::size_t at = 0;

  config::Prompter prompter() {
    return {.print = [this](const std::string& text) { printed += text; },
            .read_line = [this]() -> std::optional<std::string> {
              if (at == answers.size()) return std::nullopt;
              return answers[at++];
            }};
  }
};

config::LaunchFile ask(ScriptedUser& script, std::size_t gpus = 0, std::size_t tpus = 0) {
  return config::ask_launch_file(config::launch_file_for(gpus, tpus), gpus, tpus,
                                 script.prompter());
}

}  // namespace

TEST_CASE("questions: empty answers take the defaults") {
  ScriptedUser script{.answers = std::vector<std::string>(8)};
  const auto file = ask(script);
  CHECK(file.num_machines == 1);
  CHECK(file.num_processes == 1);
  CHECK(file.use_cpu);
  CHECK(file.mixed_precision == Precision::no);
  CHECK(file.max_restarts == 0);
  CHECK(file.log_dir.empty());
  CHECK(script.at == 8);
  CHECK(!contains(script.printed, "GPUs"));
  CHECK(!contains(script.printed, "port"));
}

TEST_CASE("questions: the number of processes defaults to the number of GPUs") {
  ScriptedUser all{.answers = std::vector<std::string>(10)};
  CHECK(ask(all, 8).num_processes == 8);
  ScriptedUser two{.answers = {"", "no", "no", "0,2", "", "", "", "", "", ""}};
  const auto file = ask(two, 8);
  CHECK(file.gpu_ids == "0,2");
  CHECK(file.num_processes == 2);
}

TEST_CASE("questions: several machines need more answers") {
  ScriptedUser script{
      .answers = {"2", "1", "10.0.0.1", "", "c10d", "n", "y", "8", "y", "bf16", "y", "2", "logs"}};
  const auto file = ask(script);
  CHECK(file.num_machines == 2);
  CHECK(file.machine_rank == 1);
  CHECK(file.main_process_ip == "10.0.0.1");
  CHECK(file.main_process_port == 29500);
  CHECK(file.rdzv_backend == "c10d");
  CHECK(!file.same_network);
  CHECK(file.num_processes == 8);
  CHECK(file.enable_cpu_affinity);
  CHECK(file.mixed_precision == Precision::bf16);
  CHECK(file.debug);
  CHECK(file.max_restarts == 2);
  CHECK(file.log_dir == "logs");
}

TEST_CASE(
    "questions: TPUs set the default number of processes, and bf16 adds a question about double") {
  ScriptedUser all{.answers = std::vector<std::string>(11)};
  const auto four = ask(all, 0, 4);
  CHECK(all.at == 11);
  CHECK(four.tpu);
  CHECK(four.num_processes == 4);
  CHECK(four.tpu_name.empty());
  CHECK(four.tpu_env.empty());
  CHECK(!contains(all.printed, "GPUs"));
  CHECK(!contains(all.printed, "double"));
  // The file may be for a different machine that has TPUs.
  ScriptedUser pod{.answers = {"2",      "0",  "10.0.0.1", "",        "",    "",    "no",
                               "yes",    "",   "A",        "A=1,B=2", "yes", "a b", "pod",
                               "zone-b", "",   "pwd",      "ls",      "",    "no",  "bf16",
                               "yes",    "no", "0",        ""}};
  const auto file = ask(pod);
  CHECK(pod.at == pod.answers.size());
  CHECK(file.num_processes == 16);  // eight on each machine by default
  CHECK(file.tpu_env == std::vector<std::string>{"A=1", "B=2"});
  CHECK(file.tpu_name == "pod");
  CHECK(file.tpu_zone == "zone-b");
  CHECK(file.commands == std::vector<std::string>{"pwd", "ls"});
  CHECK(file.downcast_bf16);
  ScriptedUser script{
      .answers = {"", "no", "yes", "2", "", "yes", "pod", "z", "setup.sh", "", "", "", "", ""}};
  const auto by_file = ask(script);
  CHECK(by_file.command_file == "setup.sh");
  CHECK(by_file.commands.empty());
  CHECK(by_file.num_processes == 2);
}

TEST_CASE("questions: invalid answers are reported and asked again") {
  const std::vector<std::string> right = {"2",   "1", "host", "29501", "2",  "yes", "no",  "n",
                                          "all", "4", "no",   "3",     "no", "0",   "none"};
  const std::vector<std::vector<std::string>> wrong = {
      {"x", "0", "-1", "1.5", "99999999999999999999"},  // machines
      {"2", "-1", "one"},                               // rank
      {"", "a b", "http://a"},                          // address
      {"0", "65536", "http"},                           // port
      {"3", "0", "etcd"},                               // backend
      {"maybe", "2"},                                   // network
      {"perhaps"},                                      // CPU
      {"many"},                                         // TPUs
      {"0,0", "0,", "x", "-1", "0,-1"},                 // GPUs
      {"3", "1", "0"},                                  // processes, on two machines
      {"2"},
      {"fp8", "4"},
      {"2"},
      {"-1", "x"},
      {},
  };
  REQUIRE(wrong.size() == right.size());
  ScriptedUser script;
  std::size_t mistakes = 0;
  for (std::size_t i = 0; i < right.size(); ++i) {
    script.answers.insert(script.answers.end(), wrong[i].begin(), wrong[i].end());
    script.answers.push_back(right[i]);
    mistakes += wrong[i].size();
  }
  const auto file = ask(script, 2);
  CHECK(script.at == script.answers.size());
  CHECK(file.num_processes == 4);
  CHECK(file.mixed_precision == Precision::bf16);
  std::size_t errors = 0;
  for (std::size_t at = 0; (at = script.printed.find("expected", at)) != std::string::npos; ++at)
    ++errors;
  CHECK(errors == mistakes);
}

TEST_CASE("questions: the error for missing answers names the command without questions") {
  for (std::size_t given = 0; given < 8; ++given) {
    ScriptedUser script{.answers = std::vector<std::string>(given)};
    const auto caught = test::error_of([&] { ask(script); });
    CHECK(caught.code == "config.no-answer");
    CHECK(caught.exit_code == 2);
    CHECK(contains(caught.text, "hasten config default"));
  }
}

}  // namespace accelerate_file_questions_test
