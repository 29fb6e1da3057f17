// File: anatomy/json.h (internal)
// What the JSON of several forms has in common.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "hasten/anatomy/report.h"

namespace hasten::anatomy {

nlohmann::ordered_json json_of(const std::vector<Alternative>& alternatives);

}  // namespace hasten::anatomy
