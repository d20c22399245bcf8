// Collects the shapes and texts of a picture in SVG.
#pragma once

#include <cstdio>
#include <string>

namespace tools {

std::string escaped_for_svg(const std::string& text);

class Svg {
 public:
  void add(const std::string& markup) { body_ += markup; }
  // The result must have less than 400 characters.
  template <typename First, typename... Others>
  void add(const char* format, First first, Others... others) {
    char text[400];
    std::snprintf(text, sizeof text, format, first, others...);
    body_ += text;
  }
  // The text `style` consists of attributes. The words are escaped.
  void text(double x, double y, const std::string& style, const std::string& words);
  // Returns the whole picture, on a white background, so that it can be read on dark pages too.
  std::string page(double width, double height) const;

 private:
  std::string body_;
};

}  // namespace tools
