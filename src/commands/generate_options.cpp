#include "commands/generate_options.h"

#include "commands/resolve.h"
#include "hasten/base/text.h"
#include "options/help.h"

namespace hasten {
namespace {

void describe_generate(config::OptionTable& table, GenerateCommand& command) {
  using C = GenerateCommand;
  config::Describer d(table, command);
  d.group("Texts");
  d("model", &C::model,
    "Set the model: a folder with config.json, weights and tokenizer.json, or its name in the "
    "Hugging Face cache.");
  d("prompt", &C::prompt, "Continue these texts, each in quotes.").keep_commas();
  d("prompts", &C::prompts, "Continue each line of this file.");
  d("ids", &C::ids, "Continue these ids, without a tokenizer, and print ids.");
  d("batch_size", &C::batch_size, "Generate for this many prompts at once.").at_least(1);
  d("json", &C::json, "Print a JSON object on a line for each text: prompt, text, ids, score.");
  d("bf16", &C::bf16, "Compute products in bfloat16.");
  d.group("Length");
  d("max_new_tokens", &C::max_new_tokens, "Generate at most this many tokens; 20 if unset.")
      .at_least(1);
  d("max_length", &C::max_length, "Limit texts to this many tokens, with the prompt.").at_least(1);
  d("min_new_tokens", &C::min_new_tokens, "Generate at least this many tokens.").at_least(0);
  d("min_length", &C::min_length,
    "Generate texts of at least this many tokens, with the prompt; min_new_tokens takes "
    "precedence.")
      .at_least(0);
  d.group("Search");
  d("num_beams", &C::num_beams, "Search with this many beams; 1 is a greedy search.").at_least(1);
  d("length_penalty", &C::length_penalty,
    "Divide the score of a beam by its number of new tokens to this power.");
  d("early_stopping", &C::early_stopping,
    "End a beam search as soon as every beam has a complete text (true), when a better one is "
    "unlikely (false), or when it is impossible (never).")
      .alias("yes", "true")
      .alias("1", "true")
      .alias("true", "true")  // in any letter case
      .alias("no", "false")
      .alias("0", "false")
      .alias("false", "false");
  d("num_return_sequences", &C::num_return_sequences,
    "Print this many texts for each prompt: samples, or the best beams.")
      .at_least(1);
  d("repetition_penalty", &C::repetition_penalty,
    "Make tokens of the text less probable, if above 1.")
      .above(0);
  d("no_repeat_ngram_size", &C::no_repeat_ngram_size,
    "Let no sequence of this many tokens occur twice. 0 means that it may.")
      .at_least(0);
  d.group("Sampling");
  d("do_sample", &C::do_sample, "Draw each token from its probability.");
  d("temperature", &C::temperature, "Divide logits by this number.").above(0);
  d("top_k", &C::top_k, "Draw only from this many tokens. 0 means all of them.").at_least(0);
  d("top_p", &C::top_p, "Draw only from the fewest tokens whose probabilities have this sum.")
      .at_least(0)
      .at_most(1);
  d("min_p", &C::min_p,
    "Draw only from tokens with at least this share of the highest probability.")
      .at_least(0)
      .at_most(1);
  d("seed", &C::seed, "Set the seed of the samples.").at_least(0);
  d.group("Tokens");
  d("eos_token_id", &C::eos_token_id, "End texts at each of these ids.");
  d("pad_token_id", &C::pad_token_id, "Pad with this id.").at_least(0);
}

void check_prompts(const GenerateCommand& command) {
  if (command.model.empty())
    config::throw_missing("--model is missing", "set --model to a folder with a decoder");
  const int kinds = !command.prompt.empty() + !command.prompts.empty() + !command.ids.empty();
  if (kinds == 0) config::throw_missing("there is no prompt", "set --prompt, --prompts or --ids");
  if (kinds > 1) {
    config::throw_conflict("more than one of --prompt, --prompts and --ids is set",
                           "remove the others");
  }
}

}  // namespace

GenerateCommand parse_generate(const std::vector<std::string>& arguments) {
  GenerateCommand command;
  command.help = config::asks_for_help(arguments);
  if (command.help) return command;
  config::OptionTable table;
  describe_generate(table, command);
  std::vector<std::string> notices;
  config::resolve(table, {config::read_flags(table, arguments)}, notices);
  check_prompts(command);
  return command;
}

std::string generate_help(int width) {
  GenerateCommand command;
  config::OptionTable table;
  describe_generate(table, command);
  return "usage: hasten generate --model FOLDER --prompt TEXT [--NAME VALUE ...]\n\n"
         "Continues texts with a GPT-2 or a Llama. Options have the names of transformers'\n"
         "GenerationConfig. An option that is not set has the value in the model's\n"
         "generation_config.json. The text of a single prompt appears while it grows.\n" +
         config::help_text(table, width);
}

}  // namespace hasten
