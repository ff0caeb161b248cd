// SPDX-License-Identifier: MIT

import Timing

/// The subject of an alert: a rule, and a name if the rule has several subjects; otherwise the name is empty.
public struct AlertSubject: Hashable, Sendable {
  public let rule: AlertRule
  public let name: String

  public init(_ rule: AlertRule, _ name: String = "") { (self.rule, self.name) = (rule, name) }

  /// Compares names byte by byte.
  public static func == (left: Self, right: Self) -> Bool {
    left.rule == right.rule && left.name.utf8.elementsEqual(right.name.utf8)
  }

  public func hash(into hasher: inout Hasher) {
    hasher.combine(rule)
    for byte in name.utf8 { hasher.combine(byte) }
  }
}

/// The present state of a subject.
public enum AlertReading: Equatable, Sendable {
  /// Something is wrong. `since`: the begin of the trouble, if it is earlier than this reading.
  case bad(text: String, value: Double? = nil, since: MonotonicTime? = nil)
  /// Neither bad nor well: an open alert stays open, and no alert begins.
  case between
  case well
}

public enum AlertChange: Equatable, Sendable {
  /// An alert begins. `since`: the begin of the trouble; `returns`: the number of returns within a day of an end.
  case begins(AlertSubject, text: String, value: Double?, since: MonotonicTime, returns: Int)
  case ends(AlertSubject)
}

/// Decides which alerts are open, and when the next one begins or ends. Pure: readings and time are arguments, changes
/// are results.
///
/// Alternating readings cause few alerts: an alert begins after its time with only bad readings, and ends after its time with only good ones. Each
/// return within a day doubles the time until the end, up to a day; a day without the alert resets it. So readings that never settle cause about a
/// dozen alerts on the first day, and later less than one a day. An alert that somebody ends, such as that of a refused configuration, does not wait.
public struct AlertBoard: Sendable {
  /// The longest time with good readings until an alert ends, and the time until the board forgets an ended alert.
  public static let longest: Duration = .seconds(86_400)
  /// The least time that doubles with each return.
  static let shortest: Duration = .seconds(60)
  /// The most subjects of a gateway. The board ignores further ones.
  public static let maxSubjects = 1024

  private enum State: Equatable {
    case calm
    case doubtful(since: MonotonicTime)
    case open
    case recovering(since: MonotonicTime)
  }

  private struct Course {
    var state = State.calm
    var returns = 0
    /// When the alert ended last.
    var ended: MonotonicTime?
    var text = ""
    var value: Double?

    var isOpen: Bool {
      switch state {
      case .calm, .doubtful: false
      case .open, .recovering: true
      }
    }
  }

  public private(set) var settings: AlertSettings
  private let maxSubjects: Int
  private var courses: [AlertSubject: Course] = [:]

  /// `maxSubjects`: the board ignores further subjects.
  public init(_ settings: AlertSettings, maxSubjects: Int = AlertBoard.maxSubjects) {
    (self.settings, self.maxSubjects) = (settings, maxSubjects)
  }

  /// The open alerts.
  public var open: [AlertSubject] { courses.filter(\.value.isOpen).map(\.key) }

  public func isOpen(_ subject: AlertSubject) -> Bool { courses[subject]?.isOpen ?? false }

  /// The text and value of an open alert; `nil`: it is not open.
  public func said(of subject: AlertSubject) -> (text: String, value: Double?)? {
    guard let course = courses[subject], course.isOpen else { return nil }
    return (course.text, course.value)
  }

  /// When an alert may begin or end without a further reading.
  public var due: MonotonicTime? { courses.compactMap { due($0.key, $0.value) }.min() }

  private func due(_ subject: AlertSubject, _ course: Course) -> MonotonicTime? {
    guard let times = settings.times[subject.rule] else { return nil }
    switch course.state {
    case .calm, .open: return nil
    case .doubtful(let since): return since + times.begins
    case .recovering(let since): return since + Self.wellFor(subject.rule, times, course.returns)
    }
  }

  private static func wellFor(_ rule: AlertRule, _ times: AlertTimes, _ returns: Int) -> Duration {
    guard returns > 0, !rule.endsByHand else { return times.ends }
    let shift = min(returns, 20)
    return min(max(times.ends, shortest) * (1 << shift), max(longest, times.ends))
  }

  // MARK: Restoring

  /// Restores an alert that was open when the program ended.
  public mutating func restore(_ subject: AlertSubject, returns: Int, text: String = "", value: Double? = nil) {
    guard settings.times[subject.rule] != nil, courses.count < maxSubjects else { return }
    courses[subject] = Course(state: .open, returns: min(max(returns, 0), 64), text: text, value: value)
  }

  /// Restores an alert that ended before the program, at this time of the board's clock.
  public mutating func restoreEnded(_ subject: AlertSubject, at time: MonotonicTime, returns: Int) {
    guard settings.times[subject.rule] != nil, courses[subject] == nil, courses.count < maxSubjects else { return }
    courses[subject] = Course(returns: min(max(returns, 0), 64), ended: time)
  }

  // MARK: Events

  public mutating func read(_ subject: AlertSubject, _ reading: AlertReading, now: MonotonicTime) -> AlertChange? {
    guard settings.times[subject.rule] != nil else { return nil }
    // A subject that was never bad takes no memory.
    guard var course = courses[subject] ?? (reading.isBad && courses.count < maxSubjects ? Course() : nil)
    else { return nil }
    switch (course.state, reading) {
    case (.calm, .bad(_, _, let since)): course.state = .doubtful(since: min(since ?? now, now))
    case (.doubtful, .between), (.doubtful, .well): course.state = .calm
    case (.open, .well): course.state = .recovering(since: now)
    // A reading between bad and well restarts the time until the end.
    case (.recovering, .bad), (.recovering, .between): course.state = .open
    case (.calm, .between), (.calm, .well), (.doubtful, .bad), (.open, .bad), (.open, .between), (.recovering, .well):
      break
    }
    if case .bad(let text, let value, _) = reading { (course.text, course.value) = (text, value) }
    let change = pass(&course, subject, now)
    let isForgotten = course.state == .calm && course.ended.map { now - $0 >= Self.longest } ?? true
    courses[subject] = isForgotten ? nil : course
    return change
  }

  /// Begins and ends the alerts that are due. Call it at `due`; calls at other times are harmless.
  public mutating func timedOut(now: MonotonicTime) -> [AlertChange] {
    var changes: [AlertChange] = []
    for (subject, before) in courses {
      var course = before
      guard let change = pass(&course, subject, now) else { continue }
      changes.append(change)
      courses[subject] = course
    }
    return changes.sorted { $0.order < $1.order }
  }

  /// Begins or ends the alert if it is due.
  private func pass(_ course: inout Course, _ subject: AlertSubject, _ now: MonotonicTime) -> AlertChange? {
    guard let due = due(subject, course), due <= now else { return nil }
    switch course.state {
    case .calm, .open: return nil
    case .doubtful(let since):
      let isBack = course.ended.map { now - $0 < Self.longest } ?? false
      course.returns = isBack ? min(course.returns + 1, 64) : 0
      course.state = .open
      return .begins(subject, text: course.text, value: course.value, since: since, returns: course.returns)
    case .recovering:
      (course.state, course.ended) = (.calm, now)
      return .ends(subject)
    }
  }

  /// Forgets a subject that no longer exists or is no longer watched. Its alert ends at once.
  public mutating func drop(_ subject: AlertSubject) -> AlertChange? {
    guard let course = courses.removeValue(forKey: subject) else { return nil }
    return course.isOpen ? .ends(subject) : nil
  }

  /// Changes the settings. Alerts of rules that are off end.
  public mutating func change(_ settings: AlertSettings) -> [AlertChange] {
    self.settings = settings
    let gone = courses.keys.filter { settings.times[$0.rule] == nil }
    return gone.compactMap { drop($0) }.sorted { $0.order < $1.order }
  }
}

extension AlertReading {
  fileprivate var isBad: Bool { if case .bad = self { true } else { false } }
}

extension AlertChange {
  public var subject: AlertSubject {
    switch self {
    case .begins(let subject, _, _, _, _), .ends(let subject): subject
    }
  }

  /// The places of the beginning and the end of the first alert that has both among these changes; `nil`: none has.
  public static func firstWhole(in changes: [AlertChange]) -> (begin: Int, end: Int)? {
    var begins: [AlertSubject: Int] = [:]
    for (place, change) in changes.enumerated() {
      switch change {
      case .begins(let subject, _, _, _, _): begins[subject] = place
      case .ends(let subject): if let begin = begins[subject] { return (begin, place) }
      }
    }
    return nil
  }

  /// Simultaneous changes are in the order of rules and names: a dictionary has no fixed order.
  fileprivate var order: String { "\(subject.rule.rawValue) \(subject.name)" }
}
