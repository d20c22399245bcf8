// Draws one iteration: a row per bucket, in which ticks are gradients that became ready, and a bar is the
// reduction.
#include <algorithm>
#include <cstdio>

#include "base/error.hpp"
#include "dtype/dtype.hpp"
#include "reducer/report.hpp"

namespace dsc {
namespace {

constexpr double kWidth = 860;
constexpr double kLeft = 90;
constexpr double kTop = 44;
constexpr double kRow = 18;
constexpr double kBar = 12;
constexpr const char* kGradientColor = "#d9822b";
constexpr const char* kBucketColor = "#4c8bb8";
constexpr const char* kExposedColor = "#fbe3e0";

class Picture {
 public:
  explicit Picture(const ReducerReport& report)
      : report_(report), begun_(report.times.begun), end_(std::max(report.times.finished, begun_ + 1)) {}

  std::string draw() {
    const auto rows = static_cast<double>(report_.layout->plan.buckets());
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" font-family=\"sans-serif\" "
        "font-size=\"11\">\n",
        kLeft + kWidth + 50, kTop + rows * kRow + 54);
    draw_title();
    draw_exposed(rows);
    for (size_t b = 0; b < report_.layout->plan.buckets(); ++b) draw_bucket(b);
    draw_axis(kTop + rows * kRow);
    draw_legend(kTop + rows * kRow + 38);
    svg_ += "</svg>\n";
    return std::move(svg_);
  }

 private:
  template <typename... Values>
  void add(const char* format, Values... values) {
    char text[512];
    std::snprintf(text, sizeof text, format, values...);
    svg_ += text;
  }

  double x(int64_t time) const {
    return kLeft + kWidth * static_cast<double>(time - begun_) / static_cast<double>(end_ - begun_);
  }
  static double ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }

  void draw_title() {
    const PhaseTimes phases = phases_of(report_.times);
    add("<text x=\"8\" y=\"16\" font-weight=\"bold\">iteration %llu on rank %d of %d: %zu gradients in %zu "
        "buckets, "
        "%.3f ms</text>\n",
        static_cast<unsigned long long>(report_.iterations), report_.group->rank(), report_.group->size(),
        report_.params->size(), report_.layout->plan.buckets(), ms(end_ - begun_));
    add("<text x=\"8\" y=\"32\" fill=\"#555\">reduced %.3f ms, of which %.3f ms beside the computation; "
        "exposed after "
        "the last gradient: %.3f ms (shaded)</text>\n",
        ms(phases.backward_comm()), ms(phases.overlap()), ms(phases.exposed()));
  }

  void draw_exposed(double rows) {
    const PhaseTimes phases = phases_of(report_.times);
    if (phases.backward_compute_end == 0) return;
    const double from = x(phases.backward_compute_end);
    add("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", from, kTop,
        std::max(0.0, kLeft + kWidth - from), rows * kRow, kExposedColor);
  }

  void draw_bucket(size_t b) {
    const double y = kTop + static_cast<double>(b) * kRow;
    const BucketLayout::Bucket& bucket = report_.layout->buckets[b];
    add("<text x=\"8\" y=\"%.1f\">%zu: %.1f KiB</text>\n", y + kBar, b,
        static_cast<double>(bucket.count * dtype_bytes(bucket.dtype)) / 1024);
    const int64_t launched = report_.times.launched[b];
    const int64_t reduced = report_.times.reduced[b] == 0 ? end_ : report_.times.reduced[b];
    if (launched != 0)
      add("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.0f\" fill=\"%s\"><title>bucket %zu: "
          "launched at "
          "%.3f ms, reduced at %.3f ms</title></rect>\n",
          x(launched), y + 3, std::max(1.0, x(reduced) - x(launched)), kBar, kBucketColor, b,
          ms(launched - begun_), ms(reduced - begun_));
    for (const size_t i : report_.layout->plan.bucket(b)) draw_gradient(i, y);
  }

  void draw_gradient(size_t i, double y) {
    const int64_t ready = report_.times.ready[i];
    if (ready == 0) return;
    add("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"2\"><title>",
        x(ready), y + 1, x(ready), y + kRow - 2, kGradientColor);
    for (const char c : report_.params->labels[i]) svg_ += c == '<' || c == '>' || c == '&' ? '_' : c;
    add(" ready at %.3f ms</title></line>\n", ms(ready - begun_));
  }

  void draw_axis(double y) {
    constexpr int kParts = 5;
    for (int part = 0; part <= kParts; ++part) {
      const double at = kLeft + kWidth * part / kParts;
      add("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#999\"/>\n", at, y, at, y + 4);
      add("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"#555\">%.3f ms</text>\n", at, y + 18,
          ms(end_ - begun_) * part / kParts);
    }
  }

  void draw_legend(double y) {
    add("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"2\"/>\n", kLeft,
        y - kBar + 2, kLeft, y + 2, kGradientColor);
    draw_label(kLeft + 8, y, "gradient ready");
    draw_sample(kLeft + 120, y, kBucketColor, "bucket being reduced");
    draw_sample(kLeft + 280, y, kExposedColor, "exposed: after the last gradient");
  }

  void draw_sample(double at, double y, const char* color, const char* label) {
    add("<rect x=\"%.1f\" y=\"%.1f\" width=\"16\" height=\"%.0f\" fill=\"%s\"/>\n", at, y - kBar + 2, kBar,
        color);
    draw_label(at + 22, y, label);
  }

  void draw_label(double at, double y, const char* label) {
    add("<text x=\"%.1f\" y=\"%.1f\" fill=\"#555\">%s</text>\n", at, y, label);
  }

  const ReducerReport& report_;
  const int64_t begun_;
  const int64_t end_;
  std::string svg_;
};

}  // namespace

std::string to_svg(const ReducerReport& report) {
  if (report.times.finished == 0 || report.times.launched.size() != report.layout->plan.buckets())
    fail(DSC_ERR_STATE, "no iteration has finished with these buckets yet, so there is nothing to draw");
  return Picture(report).draw();
}

}  // namespace dsc
