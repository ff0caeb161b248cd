// SPDX-License-Identifier: MIT

import Alerts

/// A node's clock against ours: right, wrong by a constant (set wrong once, or lost with the power), or walking. Pure.
///
/// Adverts may come late by minutes, which makes a clock seem behind; so only minutes count, a single advert changes nothing, and the rate is the
/// median of many pairs.
struct ClockCourse: Equatable {
  struct Sample: Equatable {
    /// Steady time, seconds.
    var at: Int64
    /// Seconds that the node's clock is ahead of ours.
    var offset: Int64
  }

  enum Kind: Equatable {
    /// Not enough is known yet.
    case unknown
    case constant
    /// Seconds a day; negative: it loses.
    case walking(Double)
  }

  static let most = 16
  /// Within so many seconds, only the sample that came with the least delay is kept.
  private static let spacing: Int64 = 6 * 3600
  /// A change of more seconds, and of more than a hundredth of the time, is a step: somebody set the clock, or the node lost it.
  private static let step: Int64 = 600
  private static let stepPart: Int64 = 100
  /// No clock walks by more than this part of the time.
  private static let walkPart: Int64 = 400
  /// The rate is known after so many seconds and samples.
  private static let leastTime: Int64 = 3 * 86_400
  private static let leastSamples = 4
  /// Seconds a day from which a clock walks, and the seconds that it has to have walked: more than adverts come late.
  private static let leastRate: Double = 10
  private static let leastWalk: Double = 240

  /// Since the last step, oldest first.
  var samples: [Sample] = []
  /// Adverts in a row with a wrong time; at most 2.
  var wrong = 0

  var offset: Int64? { samples.last?.offset }

  /// `elapsed`: steady time in milliseconds. Only while our own clock is synchronised.
  mutating func took(_ offset: Int64, at elapsed: Int64, _ settings: CareSettings) -> AlertReading {
    note(Sample(at: elapsed / 1000, offset: offset))
    guard offset.magnitude >= UInt64(settings.clock) else {
      wrong = 0
      return offset.magnitude < UInt64(settings.clock / 4 * 3) ? .well : .between
    }
    wrong = min(wrong + 1, 2)
    return wrong == 2 ? .bad(text: words, value: Double(offset)) : .between
  }

  private mutating func note(_ sample: Sample) {
    guard let last = samples.last else { return samples = [sample] }
    let (passed, change) = (max(0, sample.at - last.at), (sample.offset - last.offset).magnitude)
    if change > UInt64(Self.walk(within: passed)) { return samples = [sample] }
    if passed < Self.spacing, samples.count > 1 {
      samples[samples.count - 1].offset = max(last.offset, sample.offset)
      return
    }
    samples.append(sample)
    guard samples.count > Self.most else { return }
    // The older half becomes thinner: the oldest stays, for a long base.
    samples = samples.enumerated().filter { $0.offset == 0 || $0.offset > Self.most / 2 || $0.offset.isMultiple(of: 2) }
      .map(\.element)
  }

  private static func walk(within seconds: Int64) -> Int64 { max(step, seconds / stepPart) }

  /// The last offset, and by how much a clock may have walked since: minutes a day, less than a step.
  func expected(at elapsed: Int64) -> (offset: Int64, walk: Int64)? {
    samples.last.map { ($0.offset, max(Self.step, (elapsed / 1000 - $0.at) / Self.walkPart)) }
  }

  var kind: Kind {
    guard let first = samples.first, let last = samples.last, samples.count >= Self.leastSamples,
      last.at - first.at >= Self.leastTime
    else { return .unknown }
    var rates: [Double] = []
    for (index, one) in samples.enumerated() {
      for other in samples[(index + 1)...] where other.at - one.at >= 86_400 {
        rates.append(Double(other.offset - one.offset) / Double(other.at - one.at) * 86_400)
      }
    }
    rates.sort()
    guard !rates.isEmpty else { return .unknown }
    let rate = rates[rates.count / 2]
    let walked = abs(rate) * Double(last.at - first.at) / 86_400
    return abs(rate) >= Self.leastRate && walked >= Self.leastWalk ? .walking(rate) : .constant
  }

  /// Text for people; `it` is the node.
  var words: String {
    guard let offset else { return "its clock is not known" }
    let wrong = "its clock is \(UptimeCourse.span(offset.magnitude)) \(offset < 0 ? "behind" : "ahead")"
    return switch kind {
    case .unknown: "\(wrong); whether it walks is not known yet"
    case .constant: "\(wrong) and does not walk: it was set wrong, or lost its time once"
    case .walking(let rate):
      "\(wrong) and walks: it \(rate < 0 ? "loses" : "gains") \(Int(abs(rate).rounded())) s a day"
    }
  }
}
