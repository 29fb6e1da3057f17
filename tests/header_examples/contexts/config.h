// Names that the examples of hasten/config use without declaring them.
#pragma once

#include "header_examples/contexts/any.h"

namespace names_of_config {

struct Run {};
extern Run run;
void describe(hasten::config::OptionTable& table, Run& run);
extern std::vector<const char*> words;
extern std::string text;
extern std::int64_t total_steps;

}  // namespace names_of_config
