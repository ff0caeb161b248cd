// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import Store
import Timing

/// What a server asks the gateway to do.
public struct RemoteCommand: Sendable {
  /// Who asks: the upstream's name.
  public var upstream: String
  /// Given by who asks: the same id twice is one command.
  public var id: String
  public var name: String
  /// The whole request.
  public var body: JSONValue
}

/// What has become of a command.
public enum CommandAnswer: Equatable, Sendable {
  /// Taken; fields that belong to the answer.
  case done([UInt8])
  case refused(code: String, words: String)
  /// The disk did not take it: it must come again.
  case notKept(words: String)
}

/// Carries a command out; the answer comes exactly once.
public typealias CommandHandler = (RemoteCommand, @escaping (CommandAnswer) -> Void) -> Void

/// Takes commands of one upstream in: only those that are allowed, not more than so many a minute, each journaled with who
/// asked. Source: docs/mqtt.md.
final class CommandDesk {
  struct Settings: Equatable, Sendable {
    var allowed: Set<String> = ["send"]
    var perMinute = 10
  }

  /// Commands that can be allowed.
  static let known = ["send", "sync"]

  private let settings: Settings
  private let upstream: String
  private let store: Store
  private let loop: EventLoop
  private let log: Log
  private let clock = WallClock()
  var handler: CommandHandler?
  private var recent: [MonotonicTime] = []
  private var toldLimitAt: MonotonicTime?

  init(_ settings: Settings, upstream: String, store: Store, on loop: EventLoop, log: Log) {
    self.settings = settings
    self.upstream = upstream
    self.store = store
    self.loop = loop
    self.log = log
  }

  /// `done` hears the answer as JSON when all of it is on disk; `nil`: it is not, and must be asked again.
  func take(_ payload: [UInt8], _ done: @escaping ([UInt8]?) -> Void) {
    guard payload.count <= 16_384, let body = try? JSONValue(parsing: payload), body.fields != nil else {
      // `try?`: one answer fits all reasons.
      return end(
        RemoteCommand(upstream: upstream, id: "", name: "", body: .null),
        .refused(
          code: "invalid", words: "a command is a JSON object"), done)
    }
    let command = RemoteCommand(
      upstream: upstream, id: body["id"]?.string ?? "", name: body["command"]?.string ?? "", body: body)
    guard (1...48).contains(command.id.utf8.count) else {
      return end(command, .refused(code: "invalid", words: "\"id\", a string of 1 to 48 bytes, is missing"), done)
    }
    guard Self.known.contains(command.name), settings.allowed.contains(command.name), let handler else {
      let allowed = settings.allowed.sorted().joined(separator: ", ")
      return end(
        command, .refused(code: "not_allowed", words: "allowed are: \(allowed.isEmpty ? "none" : allowed)"), done)
    }
    guard isWithinLimit() else {
      return done(
        Self.answer(command, .refused(code: "full", words: "at most \(settings.perMinute) commands a minute")))
    }
    handler(command) { [weak self] answer in self?.end(command, answer, done) }
  }

  /// What is over the limit is not journaled: a flood must not fill the journal.
  private func isWithinLimit() -> Bool {
    let now = loop.now
    recent.removeAll { now - $0 >= .seconds(60) }
    guard recent.count < settings.perMinute else {
      if toldLimitAt.map({ now - $0 >= .seconds(3600) }) ?? true {
        toldLimitAt = now
        log.warning("\(upstream): more than \(settings.perMinute) commands a minute are refused (told once an hour)")
      }
      return false
    }
    recent.append(now)
    return true
  }

  private func end(_ command: RemoteCommand, _ answer: CommandAnswer, _ done: @escaping ([UInt8]?) -> Void) {
    if case .notKept(let words) = answer {
      log.warning("\(upstream): a command is not taken in: \(words); it will come again")
      return done(nil)
    }
    let moment = Moment(milliseconds: clock.milliseconds, trusted: clock.isSynchronised)
    let body = JSONWriter.object { json in
      json.field("upstream", upstream)
      json.field("id", command.id)
      json.field("command", command.name)
      if case .refused(let code, let words) = answer {
        json.field("error", words)
        json.field("code", code)
      }
    }
    store.write({ store throws(SQLiteError) in try store.append(.command, at: moment, body: body) }) { failure in
      done(failure == nil ? Self.answer(command, answer) : nil)
    }
  }

  private static func answer(_ command: RemoteCommand, _ answer: CommandAnswer) -> [UInt8] {
    JSONWriter.object { json in
      json.field("id", command.id)
      switch answer {
      case .done(let result):
        json.field("ok", true)
        json.field("result", json: result)
      case .refused(let code, let words):
        json.field("ok", false)
        json.field("error", words)
        json.field("code", code)
      case .notKept: break
      }
    }
  }
}
