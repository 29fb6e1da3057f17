// File: anatomy/report_json.h (internal)
// The JSON that several reports share. Thread rule: a pure function.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "hasten/anatomy/report.h"

namespace hasten::anatomy {

nlohmann::ordered_json json_of(const std::vector<Alternative>& alternatives);

}  // namespace hasten::anatomy
