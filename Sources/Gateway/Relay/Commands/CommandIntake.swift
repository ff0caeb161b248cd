// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import JSON
import Store
import Timing
import UntrustedText

/// What a server asks the gateway to do.
public struct RemoteCommand: Sendable {
  /// Who asks: the upstream's name.
  public var upstream: String
  /// Given by who asks: the same id twice is one command.
  public var id: String
  public var name: String
  /// The whole request.
  public var body: JSONValue
  /// Milliseconds that it stood in queues.
  public var waited: Int64 = 0
}

/// What has become of a command.
public enum CommandAnswer: Equatable, Sendable {
  /// Taken; fields that belong to the answer.
  case done([UInt8])
  case refused(code: String, message: String)
  /// The disk did not take it: it must come again.
  case notKept(message: String)
}

/// Takes commands of one upstream in: only those that are allowed, not more than so many a minute, each once, each journaled
/// with who asked. They come live, or from the queue on disk where a hub's bucket put them. Source: docs/hub-protocol.md.
final class CommandIntake: CommandTaker {
  struct Settings: Equatable, Sendable {
    var allowed: Set<String> = ["send"]
    var perMinute = 10
    /// `nil`: as many as the minutes allow.
    var perHour: Int?

    /// For people.
    fileprivate var limit: String {
      perHour.map { "\(perMinute) commands a minute and \($0) an hour" } ?? "\(perMinute) commands a minute"
    }
  }

  /// Commands that can be allowed.
  static let known = ["send", "sync", "status"]
  /// Bytes of a command at most.
  static let maxBytes = 16_384
  /// What the disk did not take, or must wait for its turn, is tried again after so long.
  private static let pause: Duration = .seconds(10)

  private let settings: Settings
  private let upstream: String
  private let store: Store
  private let loop: EventLoop
  private let log: Log
  private let clock: WallClock
  /// Runs commands. Without it the queue waits, and live requests are refused.
  weak var host: (any RelayHost)?
  private var recent: [MonotonicTime] = []
  /// Of the last minute.
  private var answers: [MonotonicTime] = []
  private var (limitLines, unreadLines, unansweredLines) = (Ration.hourly, Ration.hourly, Ration.hourly)
  /// Commands since the start that were refused without an event: unreadable, or too many.
  private(set) var refused: Int64 = 0
  /// Commands under way, and the promises of those who wait for their answers.
  private var running: [Text: [Promise<[UInt8]?>]] = [:]
  /// The tasks of `running`. The end of the upstream does not cancel them: a command without its answer on disk would run twice. Each holds the
  /// intake, and ends with the commit of its answer.
  private let tasks: LoopTasks
  /// The last number of the queue that was begun.
  private var begun: Int64 = 0
  /// While something waits in the queue.
  private var queueTask: LoopTask?

  init(_ settings: Settings, upstream: String, store: Store, on loop: EventLoop, log: Log) {
    self.settings = settings
    self.upstream = upstream
    self.store = store
    self.loop = loop
    tasks = LoopTasks(on: loop)
    clock = loop.wallClock
    self.log = log
  }

  /// A live command.
  func take(_ payload: [UInt8]) async -> [UInt8]? {
    switch read(payload) {
    case .failure(let refusal): return refuseUnread(refusal)
    case .success(let command):
      if let answer = earlierAnswer(command.id) { return answer }
      guard isWithinLimit() else {
        refused += 1
        return Self.answer(
          command, .refused(code: "full", message: "at most \(settings.limit)"), isRetryable: true
        )
      }
      return await run(command)
    }
  }

  func mayAnswer(atLeast least: Int) -> Bool {
    answers.removeAll { loop.now - $0 >= .seconds(60) }
    let most = max(least, 2 * settings.perMinute)
    guard answers.count < most else {
      refused += 1
      if unansweredLines.take(at: loop.now) {
        log.warning(
          "\(upstream): asks for more than \(most) answers a minute: the rest get none (logged at most once an hour)"
        )
      }
      return false
    }
    answers.append(loop.now)
    return true
  }

  private struct Unreadable: Error {
    let command: RemoteCommand
    let message: String
    /// It is what a gateway answers. An answer to it could be answered for ever.
    var isAnswer = false
  }

  /// What cannot be read has nobody to tell of in the journal: it is counted, and answered as often as commands may come.
  private func refuseUnread(_ refusal: Unreadable) -> [UInt8] {
    refused += 1
    if unreadLines.take(at: loop.now) {
      log.warning("\(upstream): refused as no command: \(refusal.message) (logged at most once an hour)")
    }
    guard !refusal.isAnswer, isWithinLimit() else { return [] }
    return Self.answer(refusal.command, .refused(code: "invalid", message: refusal.message))
  }

  private func read(_ payload: [UInt8]) -> Result<RemoteCommand, Unreadable> {
    // `try?`: one answer fits all reasons.
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
      let message = "\"id\", 1 to 48 bytes without control characters, is missing"
      return .failure(Unreadable(command: command, message: message))
    }
    return .success(command)
  }

  /// The same id twice is one command.
  private func earlierAnswer(_ id: String) -> [UInt8]? {
    // A store that cannot be read cannot keep the command either, and that is answered.
    store.ifReadable { try store.commandAnswer(id, of: upstream) }
  }

  /// Runs to its end once begun, even if its caller is gone.
  private func run(_ command: RemoteCommand) async -> [UInt8]? {
    // By bytes, as on disk: two that look the same are two commands.
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
    // `try?`: who was cancelled waits for no answer.
    return (try? await answer.value()) ?? nil
  }

  private func isAllowed(_ name: String) -> Bool { Self.known.contains(name) && settings.allowed.contains(name) }

  private func carryOut(_ command: RemoteCommand) async -> CommandAnswer {
    guard isAllowed(command.name), let host else {
      let allowed = settings.allowed.sorted().joined(separator: ", ")
      return .refused(code: "not_allowed", message: "allowed are: \(allowed.isEmpty ? "none" : allowed)")
    }
    return await host.carryOut(command)
  }

  // MARK: The queue

  /// Something may wait on disk.
  func runNext() {
    guard queueTask == nil, host != nil else { return }
    queueTask = loop.begin { [weak self] in
      // `try?`: cancelled when the upstream ends; the queue waits on disk.
      try? await self?.runQueue()
      self?.queueTask = nil
    }
  }

  /// Runs queued commands one after another, as fast as the limit allows.
  private func runQueue() async throws(CancellationError) {
    while let next = nextInQueue() {
      // A command for a gateway's first visit names what it has not read yet.
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

  /// For that nothing need be read.
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
      // The queue's name of it: what stands in it is what ends it.
      command.id = next.id
      command.waited = next.age
      return await run(command)
    }
  }

  private func nextInQueue() -> QueuedCommand? {
    // The queue waits on disk.
    store.ifReadable { try store.nextCommand(of: upstream, after: begun, at: Moment(clock)) }
  }

  func stop() { queueTask?.cancel() }

  // MARK: The limit

  private func hasRoom() -> Bool {
    let now = loop.now
    recent.removeAll { now - $0 >= .seconds(settings.perHour == nil ? 60 : 3600) }
    let inMinute = settings.perHour == nil ? recent.count : recent.count { now - $0 < .seconds(60) }
    return inMinute < settings.perMinute && recent.count < settings.perHour ?? .max
  }

  /// What is over the limit is not journaled: a flood must not fill the journal.
  private func isWithinLimit() -> Bool {
    guard hasRoom() else {
      if limitLines.take(at: loop.now) {
        log.warning(
          "\(upstream): more than \(settings.limit) are refused (logged at most once an hour)")
      }
      return false
    }
    recent.append(loop.now)
    return true
  }

  // MARK: Answers

  /// `nil`: the disk did not take it.
  private func end(_ command: RemoteCommand, _ answer: CommandAnswer) async -> [UInt8]? {
    if case .notKept(let message) = answer {
      log.warning("\(upstream): a command was not accepted: \(message); the hub will resend it")
      return nil
    }
    let moment = Moment(clock)
    let bytes = Self.answer(command, answer)
    var request = JSONWriter()
    request.value(command.body)
    do throws(StoreError) {
      try await store.save { [upstream] store throws(SQLiteError) in
        try store.append(.command, at: moment, body: Self.event(command, answer))
        guard !command.id.isEmpty else { return }
        try store.answerCommand(
          command.id, of: upstream, body: request.bytes, answer: bytes)
      }
      return bytes
    } catch {
      // The store says what is wrong.
      return nil
    }
  }

  private static func event(_ command: RemoteCommand, _ answer: CommandAnswer) -> [UInt8] {
    JSONWriter.object { json in
      json.field("upstream", command.upstream)
      json.field("id", command.id)
      json.field("command", command.name)
      switch answer {
      // What is asked for is not told to everybody else.
      case .done(let result): if command.name != "status" { json.field("result", json: result) }
      case .refused(let code, let message):
        json.field("error", message)
        json.field("code", code)
      case .notKept: break
      }
    }
  }

  /// `isRetryable`: nothing was decided, and the same command is taken later.
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
