// SPDX-License-Identifier: MIT

import Glibc
import JSON
import UntrustedText

/// Draws values over time as SVG. The drawing loads no other files, and follows the reader's light or dark scheme.
struct Chart {
  struct Point {
    let at: Int64
    let value: Double
  }

  enum Form { case dots, line, steps(Int64) }

  let title: String
  let unit: String
  let from: Int64
  let form: Form
  let series: [(String, [Point])]

  /// It leaves out impossible values and times.
  init(title: String, unit: String, from: Int64, form: Form, series: [(String, [Point])]) {
    (self.title, self.unit, self.from, self.form) = (title, unit, from, form)
    self.series = series.map { name, points in
      (name, points.filter { abs($0.value) <= Self.maxValue && (0...Self.latest).contains($0.at) })
    }
  }

  /// Larger than any real measurement; and the year 9999 in milliseconds since 1970.
  private static let (maxValue, latest): (Double, Int64) = (1e9, 253_402_300_799_000)
  private static let (width, height) = (900.0, 360.0)
  private static let (left, right, top, bottom) = (56.0, 16.0, 44.0, 34.0)
  /// Colours that differ also for people who cannot see red or green.
  private static let colours = ["#2f6fb0", "#c2572b", "#6a4fa3", "#2e8b57", "#9a7b1f", "#4d4d4d"]
  /// The line has a gap where values are missing for this many usual intervals.
  private static let gap = 6.0

  var json: JSONValue {
    .object([
      ("title", .string(title)), ("unit", .string(unit)),
      (
        "series",
        .array(
          series.map { name, points in
            .object([
              ("name", .string(name)),
              ("points", .array(points.map { .object([("at", .integer($0.at)), ("value", .number($0.value))]) })),
            ])
          })
      ),
    ])
  }

  func svg(to end: Int64) -> String {
    let values = series.flatMap { $0.1.map(\.value) }
    let scale = Scale(values, fromZero: { if case .steps = form { true } else { false } }())
    let span = Double(max(end - from, 1))
    func x(_ at: Int64) -> Double { Self.left + (Self.width - Self.left - Self.right) * Double(at - from) / span }
    func y(_ value: Double) -> Double {
      Self.height - Self.bottom - (Self.height - Self.top - Self.bottom) * (value - scale.low)
        / (scale.high - scale.low)
    }
    var text = head
    for tick in scale.ticks { text += line(y(tick), label: "\(Scale.label(tick))\(unit.isEmpty ? "" : " \(unit)")") }
    for tick in TimeTicks.between(from, end) { text += mark(x(tick.at), tick.label) }
    for (number, (name, points)) in series.enumerated() {
      let colour = Self.colours[number % Self.colours.count]
      text += legend(number, name, colour) + draw(points, colour, x, y, base: y(max(scale.low, 0)))
    }
    if values.isEmpty {
      text += "<text class=\"t\" x=\"450\" y=\"180\" text-anchor=\"middle\">no data in this period</text>\n"
    }
    return text + "</svg>\n"
  }

  private var head: String {
    """
    <svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 360" role="img" aria-label="\(Escaping.xml(Visible.line(title)))">
    <style>
    .b { fill: #f7f5ef } .t { font: 12px system-ui, sans-serif; fill: #22262b } .h { font-size: 15px; font-weight: 600 }
    .q { fill: #6b6f75 } .g { stroke: #d8d4c8; stroke-width: 1 }
    @media (prefers-color-scheme: dark) { .b { fill: #16191d } .t { fill: #e7e5df } .q { fill: #9aa0a8 } .g { stroke: #2c3138 } }
    </style>
    <rect class="b" width="900" height="360"/>
    <text class="t h" x="\(Self.left)" y="22">\(Escaping.xml(Visible.line(title)))</text>

    """
  }

  private func line(_ y: Double, label: String) -> String {
    """
    <line class="g" x1="\(Self.left)" x2="\(Self.width - Self.right)" y1="\(Self.short(y))" y2="\(Self.short(y))"/>
    <text class="t q" x="\(Self.left - 6)" y="\(Self.short(y + 4))" text-anchor="end">\(Escaping.xml(label))</text>

    """
  }

  private func mark(_ x: Double, _ label: String) -> String {
    """
    <line class="g" x1="\(Self.short(x))" x2="\(Self.short(x))" y1="\(Self.top)" y2="\(Self.height - Self.bottom)"/>
    <text class="t q" x="\(Self.short(x))" y="\(Self.height - Self.bottom + 18)" text-anchor="middle">\(Escaping.xml(label))</text>

    """
  }

  private func legend(_ number: Int, _ name: String, _ colour: String) -> String {
    let x = 250.0 + Double(number % 4) * 160, y = number < 4 ? 18.0 : 34.0
    guard number < 8 else { return "" }
    return """
      <rect x="\(x)" y="\(y - 8)" width="10" height="10" fill="\(colour)"/>
      <text class="t" x="\(x + 15)" y="\(y + 1)">\(Escaping.xml(TextWidth.cut(Visible.line(name), to: 22)))</text>

      """
  }

  private func draw(
    _ points: [Point], _ colour: String, _ x: (Int64) -> Double, _ y: (Double) -> Double, base: Double
  ) -> String {
    switch form {
    case .dots:
      let dots = points.map { "<circle cx=\"\(Self.short(x($0.at)))\" cy=\"\(Self.short(y($0.value)))\" r=\"2.5\"/>" }
      return "<g fill=\"\(colour)\" fill-opacity=\"0.6\">\(dots.joined())</g>\n"
    case .line:
      let parts = pieces(points).map { piece in
        piece.map { "\(Self.short(x($0.at))),\(Self.short(y($0.value)))" }.joined(separator: " ")
      }
      return parts.map { "<polyline fill=\"none\" stroke=\"\(colour)\" stroke-width=\"2\" points=\"\($0)\"/>\n" }
        .joined()
        + points.map {
          "<circle cx=\"\(Self.short(x($0.at)))\" cy=\"\(Self.short(y($0.value)))\" r=\"2\" fill=\"\(colour)\"/>"
        }.joined()
        + "\n"
    case .steps(let step):
      let bars = points.filter { $0.value > 0 }.map { point -> String in
        let start = max(x(point.at), Self.left), end = min(x(point.at + step), Self.width - Self.right)
        let high = y(point.value)
        return
          "<rect x=\"\(Self.short(start))\" y=\"\(Self.short(high))\" width=\"\(Self.short(max(end - start - 0.5, 0.5)))\" "
          + "height=\"\(Self.short(base - high))\"/>"
      }
      return "<g fill=\"\(colour)\" fill-opacity=\"0.75\">\(bars.joined())</g>\n"
    }
  }

  /// A line with gaps where values are missing for long.
  private func pieces(_ points: [Point]) -> [[Point]] {
    let distances = zip(points, points.dropFirst()).map { Double($1.at - $0.at) }.sorted()
    let usual = distances.isEmpty ? 0 : distances[distances.count / 2]
    var pieces: [[Point]] = []
    for point in points {
      if let last = pieces.last?.last, Double(point.at - last.at) <= max(usual * Self.gap, 60_000) {
        pieces[pieces.count - 1].append(point)
      } else {
        pieces.append([point])
      }
    }
    return pieces
  }

  private static func short(_ value: Double) -> String { "\((value * 10).rounded() / 10)" }

  /// A range of round numbers around all values.
  private struct Scale {
    let low: Double
    let high: Double
    let ticks: [Double]

    init(_ values: [Double], fromZero: Bool) {
      var (low, high) = (values.min() ?? 0, values.max() ?? 1)
      if fromZero { low = min(low, 0) }
      if high - low < 0.1 { (low, high) = (fromZero ? low : low - 0.05, high + 0.05) }
      let rough = (high - low) / 5
      let power = pow(10, floor(log10(rough)))
      let step = ([1, 2, 5, 10].map { $0 * power }.first { $0 >= rough }) ?? power * 10
      self.low = floor(low / step) * step
      self.high = max(ceil(high / step) * step, self.low + step)
      let count = Int(((self.high - self.low) / step).rounded())
      let begin = self.low
      ticks = (0...max(count, 1)).map { begin + Double($0) * step }
    }

    static func label(_ value: Double) -> String {
      let rounded = (value * 100).rounded() / 100
      return rounded == rounded.rounded() ? "\(Int(rounded))" : "\(rounded)"
    }
  }

  /// Days, hours or minutes, as many as there is room for.
  private enum TimeTicks {
    static func between(_ from: Int64, _ to: Int64) -> [(at: Int64, label: String)] {
      let seconds = max((to - from) / 1000, 1)
      let steps: [Int64] = [
        60, 300, 900, 3600, 10800, 21600, 43200, 86400, 2 * 86400, 7 * 86400, 30 * 86400, 365 * 86400,
      ]
      let step: Int64 = steps.first { seconds / $0 <= 9 } ?? seconds
      var (begin, parts) = (time_t(from / 1000), tm())
      localtime_r(&begin, &parts)
      // Days are in the reader's time zone.
      let offset = Int64(parts.tm_gmtoff)
      let passed: Int64 = (from / 1000 + offset) / step
      let first: Int64 = (passed + 1) * step - offset
      return stride(from: first, to: to / 1000, by: Int(step)).map { at in
        (at * 1000, Show.format(at * 1000, step >= 86400 ? "%d %b" : "%H:%M"))
      }
    }
  }
}
