// SPDX-License-Identifier: MIT

import Alerts
import JSON
import Messaging

/// What is known about a node of the gateway's care, from its reports and its signs of life.
struct NodeRecord: Equatable {
  var battery = BatteryCourse()
  var uptime = UptimeCourse()
  var noise = NoiseCourse()
  var heard = HeardCourse()
  var clock = ClockCourse()
  var polls = PollCourse()
  /// Rules of which the node's trouble is told together with that of others.
  var grouped: Set<AlertRule> = []

  init() {}

  // MARK: On disk

  var json: [UInt8] {
    JSONWriter.object { json in
      json.field("low", battery.lowReadings)
      json.arrayField("days") { json in
        for day in battery.days {
          json.array {
            $0.value(day.number); $0.value(day.highest)
          }
        }
      }
      if let last = uptime.last {
        json.arrayField("up") {
          $0.value(last.seconds); $0.value(last.at)
        }
      }
      json.field("loud", noise.loudReports)
      if let first = heard.first {
        json.arrayField("heard") { json in
          for number in [first, heard.last, Int64(heard.count), heard.longest, heard.counted] { json.value(number) }
        }
      }
      json.field("wrong", clock.wrong)
      json.arrayField("clock") { json in
        for sample in clock.samples {
          json.array {
            $0.value(sample.at); $0.value(sample.offset)
          }
        }
      }
      json.objectField("unanswered") { json in
        for (kind, count) in polls.unanswered.sorted(by: { $0.key < $1.key }) { json.field(kind, count) }
      }
      json.field("missed", polls.missedSince)
      json.field("losses", polls.losses)
      json.arrayField("grouped") { json in for rule in grouped.map(\.rawValue).sorted() { json.value(rule) } }
    }
  }

  /// The database is outside text, too: a number without sense counts as unknown.
  init?(_ json: [UInt8]) {
    // `try?`: a damaged record is begun anew.
    guard let body = try? JSONValue(parsing: json) else { return nil }
    battery.lowReadings = Self.count(body["low"])
    battery.days = Self.pairs(body["days"]).compactMap { number, highest in
      UInt16(exactly: highest).map { BatteryCourse.Day(number: number, highest: $0) }
    }.suffix(BatteryCourse.mostDays)
    if let up = body["up"]?.array, up.count == 2, let seconds = Self.number(up[0]).flatMap(UInt32.init(exactly:)),
      let at = Self.time(up[1])
    {
      uptime.last = UptimeCourse.Report(seconds: seconds, at: at)
    }
    noise.loudReports = Self.count(body["loud"])
    let times = (body["heard"]?.array ?? []).compactMap { Self.time($0) }
    if times.count == 5 {
      (heard.first, heard.last, heard.count, heard.longest) = (times[0], times[1], Self.count(times[2]), times[3])
      heard.counted = times[4]
    }
    clock.wrong = Self.count(body["wrong"])
    clock.samples = Self.pairs(body["clock"]).map { ClockCourse.Sample(at: $0, offset: $1) }.suffix(ClockCourse.most)
    for kind in NodePolling.Poll.Kind.allCases.map(\.rawValue) {
      polls.unanswered[kind] = Self.number(body["unanswered"]?[kind]).map { Self.count($0) }
    }
    polls.missedSince = Self.time(body["missed"])
    polls.losses = Self.number(body["losses"]).map { Int(min(max($0, 0), 1_000_000)) } ?? polls.losses
    grouped = Set((body["grouped"]?.array ?? []).compactMap { $0.string.flatMap(AlertRule.init(rawValue:)) })
  }

  private static func pairs(_ value: JSONValue?) -> [(Int64, Int64)] {
    (value?.array ?? []).prefix(32).compactMap { pair in
      guard let pair = pair.array, pair.count == 2, let first = number(pair[0]), let second = number(pair[1]) else {
        return nil
      }
      return (first, second)
    }
  }

  /// The judges count to a million at most.
  private static func count(_ number: Int64) -> Int { Int(min(max(number, 0), 1_000_000)) }
  private static func count(_ value: JSONValue?) -> Int { count(number(value) ?? 0) }

  /// Steady time, or time in which the gateway listened.
  private static func time(_ value: JSONValue?) -> Int64? { number(value).flatMap { $0 >= 0 ? $0 : nil } }

  /// Small enough for sums and multiples.
  private static func number(_ value: JSONValue?) -> Int64? {
    value?.integer.flatMap { JSONValue.wholeNumbers.contains($0) ? $0 : nil }
  }
}
