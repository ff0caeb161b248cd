// SPDX-License-Identifier: MIT

import Companion
import Timing

/// The companion protocol's state machine: handshake, one command at a time, replies matched by kind, pushes at any
/// moment, contact lists, time-outs.
///
/// Pure: events in, actions out; time is an argument. No input from a radio traps: an error of the radio is ignored,
/// fails one command, or drops the link.
///
///     down ──linkUp──▶ handshaking ──ready──▶ up ──linkLost──▶ down
///
/// Bounds: 64 waiting commands (more are refused), one in flight, one contact list.
public struct RadioSession: Sendable {
  /// The protocol version that we announce, the same as the official clients: from 3 on the radio sends messages with
  /// SNR.
  public static let clientVersion: UInt8 = 3
  /// The pause after a time-out, in which a late answer may come.
  static let quietAfterTimeout: Duration = .milliseconds(100)
  /// After this many unanswered commands in a row, the link is dropped.
  static let timeoutsBeforeDrop = 3
  /// After this many unreadable frames in a row, the link is dropped.
  static let glitchesBeforeDrop = 64

  /// Why a command was not answered.
  public enum Failure: Error, Equatable, Sendable {
    /// The radio has refused it.
    case refused(RadioError?)
    /// The radio was built without it (key export and import).
    case disabled
    /// There was no answer in time. The command may have been carried out nevertheless.
    case timedOut
    /// The link was lost before the answer.
    case linkLost
    /// It was not sent: the previous command of its group was refused or not answered, the radio cannot return to its
    /// default flood scope, or it answers nothing since a time-out.
    case notSent(isRefused: Bool)
    /// APP_START of another client has ended the contact list, or it stopped half-way.
    case listBroken(received: UInt32, total: UInt32)
  }

  /// The end of a command.
  public enum Outcome: Equatable, Sendable {
    case replied(Reply)
    /// The radio's own telemetry, the only answer that arrives as a push.
    case pushed(Push)
    /// A contact list is complete; its records were reported by `contact` actions.
    case contacts(total: UInt32, received: UInt32, lastModified: UInt32)
    /// The command was sent; the radio answers no command of this kind.
    case unanswered
    case failed(Failure)

    /// Whether the radio may have carried out a command that it answers with OK, and has not said so.
    public var leavesDoubt: Bool {
      switch self {
      case .replied(.ok), .failed(.refused), .failed(.disabled), .failed(.notSent): false
      default: true
      }
    }
  }

  public enum DropReason: Equatable, Sendable {
    case handshakeUnanswered
    case unresponsive
    case garbage
  }

  /// Actions for the shell.
  public enum Action: Equatable, Sendable {
    /// Write this whole frame.
    case send([UInt8])
    /// Write these bytes without framing: 200 zeros that complete a torn command.
    case sendRaw([UInt8])
    /// Serial links: invert DTR, once. Other links: nothing.
    case tryOtherLineSettings
    case ready(RadioIdentity)
    /// The contact list of command `id` begins, with the count of START.
    case listBegan(id: UInt64, total: UInt32)
    /// A record of the contact list of command `id`.
    case contact(id: UInt64, Contact)
    case completed(id: UInt64, Outcome)
    case push(Push)
    /// A reply that no command has asked for; its content is still processed.
    case unasked(Reply)
    /// A frame that cannot be decoded.
    case glitch(FrameError)
    case dropLink(DropReason)
  }

  /// A command, and optionally the frame that a client wrote for it, which is sent unchanged.
  public struct Submission: Sendable {
    public let command: Command
    public let frame: [UInt8]?
    /// Whether it is sent only if the previous command of its group succeeds.
    public let needsSuccess: Bool

    public init(_ command: Command, frame: [UInt8]? = nil, needsSuccess: Bool = false) {
      (self.command, self.frame, self.needsSuccess) = (command, frame, needsSuccess)
    }
  }

  private struct InFlight {
    let entry: CommandQueue.Entry
    let deadline: MonotonicTime
  }

  private enum State {
    case down
    case handshaking(Handshake)
    case up
  }

  private var state: State = .down
  private var queue = CommandQueue()
  private var inFlight: InFlight?
  private var iteration: ContactIteration?
  private var scope = FloodScopeWatch()
  private var quietUntil: MonotonicTime?
  /// Commands that were not answered in time, and whose answers may still come: an OK or an error does not say which
  /// command it answers.
  private var owed: [Command] = []
  private var own: KeyPrefix?
  private var lastID: UInt64 = 0
  private var timeoutsInARow = 0
  private var glitchesInARow = 0

  public init() {}

  public var isUp: Bool { if case .up = state { true } else { false } }
  /// Whether the radio has failed to return to its default flood scope: then no command is sent that would use the last
  /// one.
  public var isScopeStuck: Bool { isUp && scope.isStuck }
  /// How a command is flooded in this scope by the attached radio.
  public func setting(for scope: FloodScopeOverride) -> ScopeSetting { self.scope.setting(for: scope) }
  /// Waiting commands, without the one in flight.
  public var waiting: Int { queue.count }

  /// The command that the radio has not answered yet, if it is not the session's own.
  public var idInFlight: UInt64? { inFlight.flatMap { $0.entry.isOwn ? nil : $0.entry.id } }

  /// When to call `timedOut`.
  public var deadline: MonotonicTime? {
    switch state {
    case .down: nil
    case .handshaking(let handshake): handshake.deadline
    case .up: [inFlight?.deadline, iteration?.deadline, quietUntil].compactMap { $0 }.min()
    }
  }

  /// The link is open: begins the handshake.
  public mutating func linkUp(now: MonotonicTime) -> [Action] {
    let handshake = Handshake(now: now)
    state = .handshaking(handshake)
    scope.linkUp()
    // The answers to the handshake's commands come after all earlier ones.
    owed = []
    timeoutsInARow = 0
    glitchesInARow = 0
    return [.send(handshake.command.encode())]
  }

  /// The link is lost: all waiting commands fail.
  public mutating func linkLost() -> [Action] {
    state = .down
    quietUntil = nil
    var lost: [UInt64] = []
    if let inFlight { lost.append(inFlight.entry.id) }
    if let iteration { lost.append(iteration.id) }
    lost += queue.removeAll().map(\.id)
    inFlight = nil
    iteration = nil
    return lost.map { .completed(id: $0, .failed(.linkLost)) }
  }

  /// Queues a command. `nil` as id: the link is down or the queue is full; try again later.
  public mutating func submit(
    _ command: Command, _ priority: CommandPriority, now: MonotonicTime
  ) -> (id: UInt64?, actions: [Action]) {
    let (ids, actions) = submit(group: [Submission(command)], priority, now: now)
    return (ids?.first, actions)
  }

  /// Queues commands that are sent directly after each other. `nil`: none of them was queued; try again later.
  public mutating func submit(
    group: [Submission], _ priority: CommandPriority, now: MonotonicTime
  ) -> (ids: [UInt64]?, actions: [Action]) {
    guard isUp, !queue.isFull else { return (nil, []) }
    var followsScope = false
    let entries = group.map { submission in
      lastID &+= 1
      let entry = CommandQueue.Entry(
        id: lastID, command: submission.command, priority: priority, frame: submission.frame,
        needsSuccess: submission.needsSuccess, followsScope: followsScope)
      if case .setFloodScopeKey = submission.command { followsScope = true }
      return entry
    }
    queue.add(entries)
    return (entries.map(\.id), sendNext(now: now))
  }

  /// A frame was received.
  public mutating func received(_ frame: [UInt8], now: MonotonicTime) -> [Action] {
    let decoded: RadioFrame
    do {
      decoded = try RadioFrame(decoding: frame)
    } catch {
      glitchesInARow += 1
      let drop = glitchesInARow >= Self.glitchesBeforeDrop
      return [.glitch(error)] + (drop ? [.dropLink(.garbage)] : [])
    }
    glitchesInARow = 0
    switch (state, decoded) {
    case (.down, _): return []
    case (.handshaking(let handshake), .reply(let reply)): return handshakeReply(handshake, reply, now: now)
    case (.handshaking, .push(let push)): return [.push(push)]
    case (.up, .reply(let reply)): return self.reply(reply, now: now)
    case (.up, .push(let push)): return self.push(push, now: now)
    }
  }

  /// `deadline` has passed.
  public mutating func timedOut(now: MonotonicTime) -> [Action] {
    switch state {
    case .down: return []
    case .handshaking(var handshake):
      guard now >= handshake.deadline else { return [] }
      let remedy = handshake.timedOut(now: now)
      state = .handshaking(handshake)
      let again = Action.send(handshake.command.encode())
      switch remedy {
      case .otherLineSettings: return [.tryOtherLineSettings, again]
      case .flushTornCommand: return [.sendRaw(Array(repeating: 0, count: 200)), again]
      case .giveUp: return [.dropLink(.handshakeUnanswered)]
      }
    case .up: return expire(now: now)
    }
  }

  private mutating func expire(now: MonotonicTime) -> [Action] {
    var actions: [Action] = []
    if let expired = inFlight, now >= expired.deadline {
      inFlight = nil
      timeoutsInARow += 1
      quietUntil = now + Self.quietAfterTimeout
      owed.append(expired.entry.command)
      actions += completed(expired.entry, .failed(.timedOut))
      if timeoutsInARow >= Self.timeoutsBeforeDrop { actions.append(.dropLink(.unresponsive)) }
    }
    if let broken = iteration, now >= broken.deadline {
      iteration = nil
      actions.append(
        .completed(id: broken.id, .failed(.listBroken(received: broken.received, total: broken.total))))
    }
    return actions + sendNext(now: now)
  }

  private mutating func handshakeReply(_ handshake: Handshake, _ reply: Reply, now: MonotonicTime) -> [Action] {
    var next = handshake
    switch (handshake.step, reply) {
    case (.querying, .deviceInfo(let device)): next.advance(to: .starting(device), now: now)
    case (.querying, .error): next.advance(to: .starting(nil), now: now)
    case (.starting(nil), .deviceInfo(let device)):
      // The error was a late answer to an earlier command.
      next.step = .starting(device)
      state = .handshaking(next)
      return []
    case (.starting(let device), .selfInfo(let info)):
      let identity = RadioIdentity(info: info, device: device)
      state = .up
      own = info.key.prefix
      scope.met(identity)
      return [.ready(identity)]
    default: return [.unasked(reply)]
    }
    state = .handshaking(next)
    return [.send(next.command.encode())]
  }

  private mutating func reply(_ reply: Reply, now: MonotonicTime) -> [Action] {
    if let actions = iterate(reply, now: now) { return actions }
    guard let current = inFlight else { return [.unasked(reply)] }
    // The radio never refuses such a query: the error is an answer to an earlier command.
    if current.entry.isBarrier, case .error = reply { return [.unasked(reply)] }
    switch Expectation.match(current.entry.command, reply) {
    case .unrelated: return [.unasked(reply)]
    case .begins:
      guard case .contactsStart(let total) = reply else { return [.unasked(reply)] }
      inFlight = nil
      timeoutsInARow = 0
      iteration = ContactIteration(id: current.entry.id, total: total, now: now)
      return [.listBegan(id: current.entry.id, total: total)] + sendNext(now: now)
    case .completes:
      inFlight = nil
      // A radio that answers nothing but this query is as good as silent.
      if !current.entry.isBarrier { timeoutsInARow = 0 }
      return completed(current.entry, Self.outcome(of: reply)) + sendNext(now: now)
    }
  }

  /// Fails the commands that depended on a failed one. The session's own commands have no caller to inform.
  private mutating func completed(_ entry: CommandQueue.Entry, _ outcome: Outcome) -> [Action] {
    scope.answered(entry.command, outcome)
    let told: [Action] = entry.isOwn ? [] : [.completed(id: entry.id, outcome)]
    guard case .failed(let failure) = outcome, !(entry.isOwn && !entry.isBarrier && scope.isDefault) else {
      if entry.isBarrier { owed = [] }
      return told
    }
    return told
      + queue.removeDependents().filter { !$0.isOwn }.map {
        .completed(id: $0.id, .failed(.notSent(isRefused: failure != .timedOut)))
      }
  }

  /// Queries with answers of their own kinds.
  private static let barriers: [Command] = [.getBattery, .getDeviceTime, .getTuning]

  /// A query whose answer cannot be taken for that of a command without an answer so far. The radio answers in order, so
  /// all earlier answers have come when it is answered.
  private var barrier: Command { Self.barriers.first { !owed.contains($0) } ?? .getBattery }

  private static func outcome(of reply: Reply) -> Outcome {
    switch reply {
    case .error(let error): .failed(.refused(error))
    case .disabled: .failed(.disabled)
    default: .replied(reply)
    }
  }

  /// Treats the reply as part of the running contact list; `nil`: it is not part of it.
  private mutating func iterate(_ reply: Reply, now: MonotonicTime) -> [Action]? {
    guard var running = iteration else { return nil }
    switch reply {
    case .contact(let contact):
      if let current = inFlight, case .getContactByKey = current.entry.command { return nil }
      running.recordCame(now: now)
      iteration = running
      return [.contact(id: running.id, contact)]
    case .endOfContacts(let lastModified):
      iteration = nil
      let outcome = Outcome.contacts(total: running.total, received: running.received, lastModified: lastModified)
      return [.completed(id: running.id, outcome)] + sendNext(now: now)
    default: return nil
    }
  }

  private mutating func push(_ push: Push, now: MonotonicTime) -> [Action] {
    guard let current = inFlight, Expectation.match(current.entry.command, push, own: own) == .completes
    else {
      return [.push(push)]
    }
    inFlight = nil
    timeoutsInARow = 0
    return [.completed(id: current.entry.id, .pushed(push))] + sendNext(now: now)
  }

  /// Sends the next command if possible: one command in flight, none right after a time-out. During a contact list the
  /// sync's commands wait, and only commands whose replies cannot be confused with the list are sent.
  private mutating func sendNext(now: MonotonicTime) -> [Action] {
    if let quiet = quietUntil {
      guard now >= quiet else { return [] }
      quietUntil = nil
    }
    var actions: [Action] = []
    while inFlight == nil, isUp {
      let listing = iteration != nil
      guard var entry = queue.take(where: { !listing || Self.mayInterleave($0) }) else { break }
      // A command without its own scope is sent in the radio's default scope, or not at all.
      if entry.command.goesInScope, !entry.followsScope, !scope.isDefault {
        entry = queue.precede(entry, by: .setFloodScopeKey(.useDefault))
      }
      // A late answer would be taken for this command's: its message would count as sent, and its error be ignored.
      if !owed.isEmpty, !Expectation.isUnanswered(entry.command) { entry = queue.precede(entry, by: barrier) }
      scope.sent(entry.command)
      actions.append(.send(entry.frame ?? entry.command.encode()))
      if Expectation.isUnanswered(entry.command) {
        actions.append(.completed(id: entry.id, .unanswered))
      } else {
        inFlight = InFlight(entry: entry, deadline: now + Self.patience(entry.command))
      }
    }
    return actions
  }

  private static func mayInterleave(_ entry: CommandQueue.Entry) -> Bool {
    switch entry.command {
    case .getContacts, .getContactByKey, .appStart, .removeContact: false
    default: entry.priority != .sync
    }
  }

  /// The time limit for an answer: 5 s, more if the radio writes flash or signs in software.
  private static func patience(_ command: Command) -> Duration {
    switch command {
    case .signFinish: .seconds(15)
    case .setChannel, .setAdvertName, .importPrivateKey, .setDefaultFloodScope: .seconds(10)
    default: .seconds(5)
    }
  }
}
