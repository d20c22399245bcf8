#include "common/svg.hpp"

namespace tools {

std::string escaped_for_svg(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '<') {
      safe += "&lt;";
    } else if (c == '&') {
      safe += "&amp;";
    } else {
      safe += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  return safe;
}

void Svg::text(double x, double y, const std::string& style, const std::string& words) {
  add("<text x=\"%.1f\" y=\"%.1f\" ", x, y);
  add(style + ">" + escaped_for_svg(words) + "</text>\n");
}

std::string Svg::page(double width, double height) const {
  Svg page;
  page.add(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" ",
      width, height, width, height);
  page.add("font-family=\"sans-serif\" font-size=\"11\">\n");
  page.add("<rect width=\"%.0f\" height=\"%.0f\" fill=\"#ffffff\"/>\n", width, height);
  return page.body_ + body_ + "</svg>\n";
}

}  // namespace tools
