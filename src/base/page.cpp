#include "base/page.h"

#include <map>
#include <string_view>

#include "base/web/page.css.h"
#include "base/web/page.html.h"
#include "base/web/page.js.h"

namespace hasten {
namespace {

// Escapes every "<": names in a report may contain "</script", which would end the element.
std::string escape_for_script(std::string json) {
  std::string out;
  out.reserve(json.size());
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '<') {
      out += "\\u003c";
    } else {
      out += json[i];
    }
  }
  return out;
}

// Replaces each {{name}} of the page by the text of that name. The newline at the end of a text is
// left out, because the page has one after the name.
std::string fill_page(std::string_view page, const std::map<std::string_view, std::string>& texts) {
  std::string filled;
  while (true) {
    const std::size_t begin = page.find("{{");
    if (begin == page.npos) return filled.append(page);
    const std::size_t end = page.find("}}", begin);
    std::string_view text = texts.at(page.substr(begin + 2, end - begin - 2));
    if (text.ends_with('\n')) text.remove_suffix(1);
    filled.append(page.substr(0, begin)).append(text);
    page.remove_prefix(end + 2);
  }
}

}  // namespace

std::string render_page(const std::string& title, const std::string& json, const char* script) {
  return fill_page(embedded::kPage, {{"style", embedded::kPageStyle},
                                     {"title", title},
                                     {"report", escape_for_script(json)},
                                     {"tools", embedded::kPageTools},
                                     {"script", script}});
}

}  // namespace hasten
