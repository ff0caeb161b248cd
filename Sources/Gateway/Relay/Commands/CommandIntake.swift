// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import JSON
import Store
import Timing
import UntrustedText

/// A server's request to the gateway.
public struct RemoteCommand: Sendable {
  /// The name of the requesting upstream.
  public var upstream: String
  /// Chosen by the requester: the same id twice is one command.
  public var id: String
  public var name: String
  /// The whole request.
  public var body: JSONValue
  /// The time in queues, in milliseconds.
  public var waited: Int64 = 0
}

/// The result of a command.
public enum CommandAnswer: Equatable, Sendable {
  /// Accepted; further fields of the answer.
  case done([UInt8])
  case refused(code: String, message: String)
  /// The disk refused it: it has to come again.
  case notKept(message: String)
}

/// Accepts commands of one upstream: only allowed ones, a limited number a minute, each once, and journals them. They
/// come live, or from the queue on disk, where a hub's bucket put them. Source: docs/hub-protocol.md.
final class CommandIntake {
  /// Commands that can be allowed.
  static let known = ["send", "sync", "status"]
  /// The maximum size of a command, in bytes.
  static let maxBytes = 16_384
  /// The pause before a command that the disk refused, or that has to wait, is tried again.
  static let pause: Duration = .seconds(10)

  private let settings: Upstream.Settings
  private let upstream: String
  private let store: Store
  private let loop: EventLoop
  private let log: Log
  private let clock: WallClock
  /// Runs commands. Without it the queue waits, and live commands are refused.
  weak var host: (any RelayHost)?
  private var recent: [MonotonicTime] = []
  /// The times of answers within the last minute.
  private var answers: [MonotonicTime] = []
  private var (limitLines, unreadLines, unansweredLines) = (Ration.hourly, Ration.hourly, Ration.hourly)
  private var (notKeptLines, foreignLines) = (Ration.hourly, Ration.hourly)
  /// Of each right that is missing: the log says so.
  private var rightLines: [String: Ration] = [:]
  /// Rights that the server's commands, and its edits of documents, have needed since the start, and that it does not have.
  private(set) var unpermitted: Set<String> = []
  /// Events of ended commands that are journaled again.
  private var repeatedEnds = Ration(most: 64, oneIn: .seconds(60))
  /// Commands since the start that were refused without an event: unreadable, too many, or on another topic.
  private(set) var refused: Int64 = 0
  /// Running commands, and the promises of the tasks that wait for their answers.
  private var running: [Text: [Promise<[UInt8]?>]] = [:]
  /// The tasks of `running`. The end of the upstream does not cancel them: a command whose answer is not on disk would
  /// run twice. Each holds the intake, and ends with the commit of its answer.
  private let tasks: LoopTasks
  /// The number of the last queued command that was begun.
  private var begun: Int64 = 0
  /// Runs while the queue is not empty.
  private var queueTask: LoopTask?

  init(_ settings: Upstream.Settings, store: Store, on loop: EventLoop, log: Log) {
    self.settings = settings
    upstream = settings.name
    self.store = store
    self.loop = loop
    tasks = LoopTasks(on: loop)
    clock = loop.wallClock
    self.log = log
  }

  /// Carries out a live command. Returns its answer as JSON, once the command is on disk; empty: there is no answer; `nil`: the disk refuses it, and
  /// the server must ask again. Such a try does not count against the limit.
  func take(_ payload: [UInt8]) async -> [UInt8]? {
    switch read(payload) {
    case .failure(let refusal): return refuseUnread(refusal)
    case .success(let command):
      if let answer = earlierAnswer(command.id) { return answer }
      guard isWithinLimit() else {
        refused += 1
        return Self.answer(
          command, .refused(code: "full", message: "at most \(limit)"), isRetryable: true
        )
      }
      let answer = await run(command)
      // A command that the disk refused comes again.
      if answer == nil, !Task.isCancelled, !recent.isEmpty { recent.removeLast() }
      return answer
    }
  }

  /// Whether a broker may get one more answer. Its other clients may send any number of commands, so answers are limited to twice the permitted rate
  /// of commands, and at least to `least` a minute.
  func mayAnswer(atLeast least: Int) -> Bool {
    answers.removeAll { loop.now - $0 >= .seconds(60) }
    let most = max(least, 2 * settings.commandsPerMinute)
    guard answers.count < most else {
      refused += 1
      warn("more than \(most) requests a minute: the rest get no answer", within: &unansweredLines)
      return false
    }
    answers.append(loop.now)
    return true
  }

  private struct Unreadable: Error {
    let command: RemoteCommand
    let message: String
    /// It is a gateway's answer. Answering answers could go on forever.
    var isAnswer = false
  }

  /// An unreadable command is counted, not journaled, and gets an answer only within the limit for commands.
  private func refuseUnread(_ refusal: Unreadable) -> [UInt8] {
    refused += 1
    warn("a message is not a command: \(refusal.message)", within: &unreadLines)
    guard !refusal.isAnswer, isWithinLimit() else { return [] }
    return Self.answer(refusal.command, .refused(code: "invalid", message: refusal.message))
  }

  /// A message of a broker on another topic than that for commands.
  func refuseForeign(_ trouble: String) {
    refused += 1
    warn(trouble, within: &foreignLines)
  }

  func warn(_ words: String) { log.warning("\(upstream): \(words)") }

  private func warn(_ words: String, within lines: inout Ration) {
    if lines.take(at: loop.now) { warn("\(words) (logged at most once an hour)") }
  }

  private func read(_ payload: [UInt8]) -> Result<RemoteCommand, Unreadable> {
    // `try?`: all errors get the same answer.
    let json = payload.count <= Self.maxBytes ? try? JSONValue(parsing: payload) : nil
    guard let body = json, body.fields != nil else {
      let command = RemoteCommand(upstream: upstream, id: "", name: "", body: .null)
      return .failure(Unreadable(command: command, message: "a command must be a JSON object"))
    }
    let command = RemoteCommand(
      upstream: upstream, id: body["id"]?.string ?? "", name: body["command"]?.string ?? "", body: body)
    if body["command"] == nil, body["ok"]?.bool != nil {
      return .failure(Unreadable(command: command, message: "it is the answer to a command", isAnswer: true))
    }
    guard Visible.isLine(command.id, bytes: 1...48) else {
      let message = "\"id\", 1 to 48 bytes, not only blanks, without control characters, is missing"
      return .failure(Unreadable(command: command, message: message))
    }
    return .success(command)
  }

  /// The same id twice is one command.
  private func earlierAnswer(_ id: String) -> [UInt8]? {
    // If the store cannot be read, the command cannot be stored either, and the caller learns that.
    let kept: [UInt8]? = store.ifReadable { try store.commandAnswer(id, of: upstream) }
    guard kept?.isEmpty == true else { return kept }
    return Self.answer(
      RemoteCommand(upstream: upstream, id: id, name: "", body: .null),
      .refused(code: "repeated", message: "a command with this id has ended here before"))
  }

  /// Runs a command to its end, even if its caller is gone.
  private func run(_ command: RemoteCommand) async -> [UInt8]? {
    // By bytes, as on disk: canonically equivalent ids are two commands.
    let (id, answer) = (Text(command.id), Promise<[UInt8]?>())
    if running[id] == nil {
      running[id] = [answer]
      tasks.begin {
        let bytes = await self.end(command, await self.carryOut(command))
        for waiting in self.running.removeValue(forKey: id) ?? [] { waiting.keep(bytes) }
      }
    } else {
      running[id]?.append(answer)
    }
    // `try?`: a cancelled caller needs no answer.
    return (try? await answer.value()) ?? nil
  }

  private func isAllowed(_ name: String) -> Bool { Self.known.contains(name) && settings.allowed.contains(name) }

  private func carryOut(_ command: RemoteCommand) async -> CommandAnswer {
    guard isAllowed(command.name), let host else {
      tellUnpermitted(command.name)
      let allowed = settings.allowed.sorted().joined(separator: ", ")
      let words = "allowed are: \(allowed.isEmpty ? "none" : allowed) (`allow` in the gateway's configuration)"
      return .refused(code: "not_allowed", message: words)
    }
    return await host.carryOut(command)
  }

  /// The operator learns which line would permit it. A word that no line permits is the sender's mistake.
  private func tellUnpermitted(_ name: String) {
    guard Self.known.contains(name), !settings.allowed.contains(name) else { return }
    tell("the command \(name) is refused, because its `allow` does not name it", missing: name)
  }

  /// The server's edit of a document is refused. Nobody waits for an answer to it.
  func tellUnpermittedEdit(of key: String, _ right: String) {
    tell("the server's edit of \(key) is refused, because its `allow` does not name \(right)", missing: right)
  }

  private func tell(_ refusal: String, missing right: String) {
    unpermitted.insert(right)
    let line = Upstream.Settings.line(permitting: settings.allowed.union([right]))
    warn("\(refusal); to permit it: \(line)", within: &rightLines[right, default: .hourly])
  }

  // MARK: The queue

  /// Runs queued commands, if any.
  func runNext() {
    guard queueTask == nil, host != nil else { return }
    queueTask = loop.begin { [weak self] in
      // `try?`: cancelled when the upstream ends; the queue stays on disk.
      try? await self?.runQueue()
      self?.queueTask = nil
    }
  }

  /// Runs queued commands one after another, as fast as the limit allows.
  private func runQueue() async throws(CancellationError) {
    while let next = nextInQueue() {
      // A command names contacts and channels, which a new gateway has not read from the radio yet.
      guard hasRoom(), host?.isReadyForCommands == true || isRefused(next) else {
        try await loop.sleep(for: Self.pause)
        continue
      }
      begun = next.number
      recent.append(loop.now)
      if await answer(next) == nil {
        begun = next.number - 1
        try await loop.sleep(for: Self.pause)
      }
    }
  }

  /// A refusal needs no data, and so need not wait.
  private func isRefused(_ next: QueuedCommand) -> Bool {
    guard case .success(let command) = read(next.body) else { return true }
    return !isAllowed(command.name)
  }

  private func answer(_ next: QueuedCommand) async -> [UInt8]? {
    switch read(next.body) {
    case .failure(let refusal):
      var command = refusal.command
      command.id = next.id
      return await end(command, .refused(code: "invalid", message: refusal.message))
    case .success(var command):
      // The queue's id of the command: with it, the answer ends the queue's row.
      command.id = next.id
      command.waited = next.age
      return await run(command)
    }
  }

  private func nextInQueue() -> QueuedCommand? {
    // If the store cannot be read, the queue stays on disk.
    store.ifReadable { try store.nextCommand(of: upstream, after: begun, at: Moment(clock)) }
  }

  func stop() { queueTask?.cancel() }

  // MARK: The limit

  private func hasRoom() -> Bool {
    let now = loop.now
    let perHour = settings.commandsPerHour
    recent.removeAll { now - $0 >= .seconds(perHour == nil ? 60 : 3600) }
    let inMinute = perHour == nil ? recent.count : recent.count { now - $0 < .seconds(60) }
    return inMinute < settings.commandsPerMinute && recent.count < perHour ?? .max
  }

  /// For texts.
  private var limit: String {
    let inMinute = "\(settings.commandsPerMinute) commands a minute"
    return settings.commandsPerHour.map { "\(inMinute) and \($0) an hour" } ?? inMinute
  }

  /// Commands beyond the limit are not journaled: a flood must not fill the journal.
  private func isWithinLimit() -> Bool {
    guard hasRoom() else {
      warn("more than \(limit) are refused", within: &limitLines)
      return false
    }
    recent.append(loop.now)
    return true
  }

  // MARK: Answers

  /// Stores the answer, with the event. Returns it; `nil`: the disk refused it.
  private func end(_ command: RemoteCommand, _ answer: CommandAnswer) async -> [UInt8]? {
    if case .notKept(let message) = answer {
      warn("a command was not accepted: \(message); it will be tried again", within: &notKeptLines)
      return nil
    }
    let moment = Moment(clock)
    let bytes = Self.answer(command, answer)
    let commit = store.write { [upstream] store throws(SQLiteError) in
      try store.append(.command, at: moment, body: Self.event(command, answer))
      guard !command.id.isEmpty else { return }
      try store.answerCommand(command.id, of: upstream, body: command.body.bytes, answer: bytes)
    }
    // The store logs a failure.
    return await commit.failure() == nil ? bytes : nil
  }

  /// Journals the end of a command again if the hub's queue has a command that has ended here: the hub queued it after
  /// the event, or lost the event, and would keep the command until it expires.
  func repeatEnd(of id: String, _ payload: [UInt8]) {
    // `try?`: the store has only JSON; a command's name is only shown.
    guard let bytes = earlierAnswer(id), let answer = try? JSONValue(parsing: bytes),
      repeatedEnds.take(at: loop.now)
    else { return }
    // `try?`: as above.
    let name = (try? JSONValue(parsing: payload))?["command"]?.string ?? ""
    let command = RemoteCommand(upstream: upstream, id: id, name: name, body: .null)
    let outcome: CommandAnswer =
      answer["ok"]?.bool == true
      ? .done((answer["result"] ?? .null).bytes)
      : .refused(code: answer["code"]?.string ?? "", message: answer["error"]?.string ?? "")
    let (moment, body) = (Moment(clock), Self.event(command, outcome))
    store.write { store throws(SQLiteError) in try store.append(.command, at: moment, body: body) }
  }

  private static func event(_ command: RemoteCommand, _ answer: CommandAnswer) -> [UInt8] {
    JSONWriter.object { json in
      json.field("upstream", command.upstream)
      json.field("id", command.id)
      json.field("command", command.name)
      switch answer {
      // The answer to `status` is for the requester only.
      case .done(let result): if command.name != "status" { json.field("result", json: result) }
      case .refused(let code, let message):
        json.field("error", message)
        json.field("code", code)
      case .notKept: break
      }
    }
  }

  /// `isRetryable`: the command was not decided on, and may come again.
  private static func answer(
    _ command: RemoteCommand, _ answer: CommandAnswer, isRetryable: Bool = false
  ) -> [UInt8] {
    JSONWriter.object { json in
      json.field("id", command.id)
      if isRetryable { json.field("retry", true) }
      switch answer {
      case .done(let result):
        json.field("ok", true)
        json.field("result", json: result)
      case .refused(let code, let message):
        json.field("ok", false)
        json.field("error", message)
        json.field("code", code)
      case .notKept: break
      }
    }
  }
}
