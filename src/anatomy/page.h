// File: anatomy/page.h (internal)
// One page that needs nothing else: the JSON inside it, drawn by a script that finds it as
// `report`, beside functions for headings, tables, bars and charts (page.cpp).
#pragma once

#include <string>

namespace hasten::anatomy {

std::string page(const std::string& title, const std::string& json, const char* script);

}  // namespace hasten::anatomy
