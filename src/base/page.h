// File: base/page.h (internal)
// Builds a self-contained HTML page from the files in base/web. It embeds `json`, which `script`
// reads as `report`, and functions with which the script draws headings, tables, bars and SVG
// elements (page.js). Thread rule: a pure function.
#pragma once

#include <string>

#include "base/internal_api.h"

namespace hasten {

HASTEN_INTERNAL_API std::string render_page(const std::string& title, const std::string& json,
                                            const char* script);

}  // namespace hasten
