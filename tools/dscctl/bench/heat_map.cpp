#include "dscctl/bench/heat_map.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "common/svg.hpp"
#include "dscctl/bench/report.hpp"

namespace dscctl::bench {
namespace {

// Pixels.
constexpr double kMargin = 20, kNames = 110, kGap = 16, kLeastCellWidth = 46, kCellHeight = 22;
constexpr double kLeastPanelWidth = 160, kLetter = 6;  // for headings and sizes
constexpr double kTop = 100, kPanelHead = 44, kPanelGap = 16;

constexpr const char* kInk = "#1d2430";
constexpr const char* kSoft = "#4a5361";
constexpr const char* kPaper = "#ffffff";  // also the ink on dark shades

// The shades of bandwidths below a limit in GB/s. The limits have about equal distances on a logarithmic
// scale.
struct Shade {
  double below;
  const char* limit;
  const char* color;
  const char* ink;
};
constexpr std::array<Shade, 7> kShades{{{0.1, "0.1", "#dce9f6", kInk},
                                        {0.3, "0.3", "#bdd7ee", kInk},
                                        {1, "1", "#9ecae1", kInk},
                                        {3, "3", "#6baed6", kInk},
                                        {10, "10", "#4292c6", kInk},
                                        {30, "30", "#2171b5", kPaper},
                                        {1e300, "", "#084594", kPaper}}};

const Shade& shade_of(double gigabytes_per_second) {
  size_t shade = 0;
  while (shade + 1 < kShades.size() && gigabytes_per_second >= kShades[shade].below) ++shade;
  return kShades[shade];
}

class HeatMap {
 public:
  explicit HeatMap(const std::vector<SweepRows>& all) : all_(all) {
    for (const SweepRows& measured : all)
      for (const Row& row : measured.rows) {
        if (!row.of.operation->moves) continue;
        sizes_.insert(row.of.bytes);
        names_.insert(row.of.operation->name);
        for (const std::string& words : {size_text(row.of.bytes), microseconds_text(row.median_us)})
          cell_width_ = std::max(cell_width_, kLetter * static_cast<double>(words.size() + 1));
      }
  }

  std::string draw() {
    const double columns = std::max(static_cast<double>(sizes_.size()) * cell_width_, kLeastPanelWidth);
    const double rows = static_cast<double>(names_.size()) * kCellHeight;
    draw_head();
    double top = kTop + kPanelHead;
    for (const SweepRows& measured : all_) {
      draw_names(top);
      for (const bool shared : {false, true})
        draw_panel(measured, shared, kMargin + kNames + (shared ? columns + kGap : 0), top);
      top += rows + kPanelHead + kPanelGap;
    }
    // The legend is wider than the cells of one or two sizes.
    const double width = std::max(2 * kMargin + kNames + kGap + 2 * columns, 860.0);
    return svg_.page(width, top - kPanelHead);
  }

 private:
  void text(double x, double y, int font, const char* color, const char* anchor, const std::string& words) {
    svg_.text(
        x, y,
        "font-size=\"" + std::to_string(font) + "\" fill=\"" + color + "\" text-anchor=\"" + anchor + "\"",
        words);
  }

  void box(double x, double y, double width, double height, const char* color) {
    svg_.add("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x, y, width,
             height, color);
  }

  void draw_head() {
    text(kMargin, 30, 16, kInk, "start", "Times of libdsc on this machine, in microseconds");
    text(kMargin, 50, 12, kSoft, "start",
         "f32; median time of the slowest rank; color: algbw, which is bytes divided by time, in GB/s; "
         "processors: " +
             std::to_string(allowed_processors()));
    double x = kMargin;
    std::string lower;
    for (const Shade& shade : kShades) {
      const std::string limit = shade.limit;
      const std::string words = lower.empty()   ? "below " + limit
                                : limit.empty() ? "from " + lower
                                                : lower + " to " + limit;
      box(x, 68, 14, 14, shade.color);
      text(x + 20, 79, 12, kSoft, "start", words);
      x += 110;
      lower = limit;
    }
  }

  void draw_names(double top) {
    for (const Operation& operation : operations()) {
      if (!names_.contains(operation.name)) continue;
      text(kMargin, top + 15, 12, kInk, "start", operation.name);
      top += kCellHeight;
    }
  }

  void draw_panel(const SweepRows& measured, bool shared, double left, double top) {
    text(left, top - 22, 13, kInk, "start",
         std::to_string(measured.ranks) + (measured.ranks == 1 ? " rank, " : " ranks, ") +
             (shared ? "shared buffers" : "plain buffers"));
    double x = left;
    for (const size_t bytes : sizes_) {
      text(x + cell_width_ / 2, top - 6, 10, kSoft, "middle", size_text(bytes));
      double y = top;
      for (const Operation& operation : operations()) {
        if (!names_.contains(operation.name)) continue;
        draw_cell(measured, {&operation, shared, bytes}, x, y);
        y += kCellHeight;
      }
      x += cell_width_;
    }
  }

  // The cell of an operation that cannot run with this number of ranks has no time.
  void draw_cell(const SweepRows& measured, const Case& of, double x, double y) {
    for (const Row& row : measured.rows) {
      if (row.of.operation != of.operation || row.of.shared != of.shared || row.of.bytes != of.bytes)
        continue;
      const Shade& shade = shade_of(gigabytes_per_second(row));
      box(x, y, cell_width_ - 1, kCellHeight - 1, shade.color);
      text(x + cell_width_ / 2, y + 15, 11, shade.ink, "middle", microseconds_text(row.median_us));
      return;
    }
    box(x, y, cell_width_ - 1, kCellHeight - 1, "#f2f4f8");
    text(x + cell_width_ / 2, y + 15, 11, kInk, "middle", "-");
  }

  const std::vector<SweepRows>& all_;
  std::set<size_t> sizes_;
  std::set<std::string> names_;
  double cell_width_ = kLeastCellWidth;
  tools::Svg svg_;
};

}  // namespace

std::string heat_map(const std::vector<SweepRows>& all) { return HeatMap(all).draw(); }

}  // namespace dscctl::bench
