#include "dscctl/trace/iteration.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "common/svg.hpp"

namespace dscctl::trace {
namespace {

constexpr double kWidth = 860;
constexpr double kLeft = 96;
constexpr double kRight = 60;
constexpr double kTitle = 40;
constexpr double kRow = 16;
constexpr double kBar = 10;
constexpr double kAxis = 34;

struct Panel {
  const Dump* dump;
  const Iteration* iteration;
};

// The panels of one reducer, and the time range that their axis covers.
struct Figure {
  std::vector<Panel> panels;
  TimeNs begin = INT64_MAX;
  TimeNs end = 0;
};

TimeNs latest_of(const Iteration& iteration) {
  TimeNs latest = std::max(iteration.begun, iteration.finishing.value_or(0));
  for (const auto& gradient : iteration.gradients) latest = std::max(latest, gradient.ready.value_or(0));
  for (const auto& bucket : iteration.buckets)
    latest = std::max({latest, bucket.launched.value_or(0), bucket.reduced.value_or(0)});
  return latest;
}

// An iteration that has not finished lasts until the dump. Its visible events may cover only a thousandth of
// that time, so the axis ends soon after them.
TimeNs end_of(const Panel& panel) {
  const Iteration& iteration = *panel.iteration;
  const TimeNs seen = latest_of(iteration);
  return iteration.finished.value_or(std::min(panel.dump->time, seen + (seen - iteration.begun) / 2 + 1));
}

std::map<size_t, Figure> figures_of(const Trace& trace) {
  std::map<size_t, Figure> figures;
  for (const Dump& dump : trace.dumps) {
    for (const Iteration& iteration : dump.iterations) {
      Figure& figure = figures[iteration.group];
      figure.panels.push_back({&dump, &iteration});
      figure.begin = std::min(figure.begin, iteration.begun);
      figure.end = std::max({figure.end, end_of(figure.panels.back()), iteration.begun + 1});
    }
  }
  return figures;
}

double us(TimeNs ns) { return static_cast<double>(ns) / 1e3; }

class Picture {
 public:
  explicit Picture(const Trace& trace) : trace_(trace) {}

  std::string draw(const std::map<size_t, Figure>& figures) {
    for (const auto& [group, figure] : figures) draw_figure(group, figure);
    return svg_.page(kLeft + kWidth + kRight, y_);
  }

 private:
  double x(TimeNs time) const {
    return kLeft + kWidth * static_cast<double>(time - begin_) / static_cast<double>(end_ - begin_);
  }

  void draw_figure(size_t group, const Figure& figure) {
    begin_ = figure.begin;
    end_ = figure.end;
    svg_.text(
        8, y_ + 18, "font-weight=\"bold\"",
        "reducer " + trace_.groups[group].name + ": gradients (ticks), reductions (bars), exposed (shaded)");
    y_ += kTitle - 12;
    for (const Panel& panel : figure.panels) draw_panel(panel);
    draw_axis();
  }

  void draw_panel(const Panel& panel) {
    const Iteration& iteration = *panel.iteration;
    svg_.text(8, y_ + 12, "fill=\"#333\"",
              "rank " + std::to_string(panel.dump->rank) + ", iteration " + std::to_string(iteration.number) +
                  (iteration.finished ? "" : ": not finished"));
    y_ += kRow;
    draw_exposed(panel);
    for (size_t b = 0; b < iteration.buckets.size(); ++b) draw_bucket(panel, b);
    y_ += kRow / 2;
  }

  // After the last gradient, no computation overlaps with the reduction.
  void draw_exposed(const Panel& panel) {
    const Iteration& iteration = *panel.iteration;
    TimeNs last = 0;
    for (const Iteration::Gradient& gradient : iteration.gradients) {
      if (!gradient.ready && !iteration.finished) return;
      last = std::max(last, gradient.ready.value_or(0));
    }
    if (last == 0) return;
    svg_.add("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#fbe3e0\"/>\n", x(last), y_,
             std::max(0.0, x(end_of(panel)) - x(last)), kRow * static_cast<double>(iteration.buckets.size()));
  }

  void draw_bucket(const Panel& panel, size_t b) {
    const Iteration::Bucket& bucket = panel.iteration->buckets[b];
    svg_.add("<text x=\"8\" y=\"%.1f\" fill=\"#555\">%zu: %.1f KiB</text>\n", y_ + kBar, b,
             static_cast<double>(bucket.bytes) / 1024);
    if (bucket.launched) draw_reduction(panel, b);
    for (const Iteration::Gradient& gradient : panel.iteration->gradients)
      if (gradient.bucket == b && gradient.ready) draw_gradient(gradient);
    y_ += kRow;
  }

  void draw_reduction(const Panel& panel, size_t b) {
    const Iteration::Bucket& bucket = panel.iteration->buckets[b];
    const TimeNs to = bucket.reduced.value_or(end_of(panel));
    svg_.add(
        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.0f\" fill=\"%s\"><title>bucket %zu: launched "
        "at %.1f us, ",
        x(*bucket.launched), y_ + 2, std::max(1.0, x(to) - x(*bucket.launched)), kBar,
        bucket.reduced ? "#4c8bb8" : "#a9b8c4", b, us(*bucket.launched - begin_));
    bucket.reduced ? svg_.add("reduced at %.1f us", us(to - begin_)) : svg_.add("end not known");
    svg_.add("</title></rect>\n");
  }

  void draw_gradient(const Iteration::Gradient& gradient) {
    const double at = x(*gradient.ready);
    svg_.add(
        "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#d9822b\" "
        "stroke-width=\"2\"><title>",
        at, y_ + 1, at, y_ + kRow - 2);
    svg_.add(tools::escaped_for_svg(gradient.name));
    svg_.add(" ready at %.1f us</title></line>\n", us(*gradient.ready - begin_));
  }

  void draw_axis() {
    constexpr int kParts = 5;
    for (int part = 0; part <= kParts; ++part) {
      const double at = kLeft + kWidth * part / kParts;
      svg_.add("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#999\"/>\n", at, y_, at,
               y_ + 4);
      svg_.add("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"#555\">%.1f us</text>\n", at,
               y_ + 18, us(end_ - begin_) * part / kParts);
    }
    y_ += kAxis;
  }

  const Trace& trace_;
  tools::Svg svg_;
  double y_ = 0;
  TimeNs begin_ = 0;
  TimeNs end_ = 1;
};

}  // namespace

std::string draw_iterations(const Trace& trace) {
  const std::map<size_t, Figure> figures = figures_of(trace);
  return figures.empty() ? "" : Picture(trace).draw(figures);
}

}  // namespace dscctl::trace
