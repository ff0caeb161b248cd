// SPDX-License-Identifier: MIT

import Companion
import Delivery
import EventLoop
import Glibc
import MeshCrypto
import RadioSession
import Store
import Sync
import Timing

/// Questions to other nodes, one at a time: the radio forgets the first when it gets a second
/// (docs/protocol/companion.md § 9.8).
///
/// Silence is the only error that servers report. At most 32 questions wait, the most urgent first; further ones are refused.
public final class NodeRequests {
  static let bound = 32
  /// A factor for the suggested time-out, which is for an idle mesh.
  private static let patience = 1.25
  private static let shortest: Duration = .seconds(4)
  public static let longest: Duration = .seconds(60)
  /// A reply of the CLI leaves up to a second after the command arrived (docs/protocol/telemetry.md § 7).
  private static let cliExtra: Duration = .seconds(2)

  /// The present question. Its answer can arrive in the same read as the radio's reply, whose tag it carries, before the task that asks runs again.
  private final class Asked {
    let question: NodeQuestion
    let contact: Contact
    let mark: CommandMark
    /// The command that was handed to the radio.
    var handed: RadioQuestion?
    let answer = Promise<Result<NodeAnswer, Refusal>>()

    init(_ question: NodeQuestion, _ contact: Contact, _ mark: CommandMark) {
      self.question = question
      self.contact = contact
      self.mark = mark
    }

    /// The answer's tag; `nil`: the radio has not taken the question.
    var tag: AckCode? {
      if case .replied(.sent(let sent)) = handed?.answer?.outcome { sent.ackOrTag } else { nil }
    }
  }

  /// The lifetime of a link: a question that waited through its end is not asked on the next link.
  private final class LinkLife {
    var isOver = false
  }

  /// The turn of a program that shares the radio. It ends with `leave`, or with the link.
  public final class SharedTurn {
    private let turns: LoopSemaphore<DeliveryPriority>
    private var isOver = false

    fileprivate init(_ turns: LoopSemaphore<DeliveryPriority>) { self.turns = turns }

    deinit { leave() }

    public func leave() {
      guard !isOver else { return }
      isOver = true
      turns.leave()
    }
  }

  private let messenger: Messenger
  private let turns = LoopSemaphore<DeliveryPriority>(bound: bound)
  private var link = LinkLife()
  /// The last question, even after its caller has gone: its air time is spent, and the answer may still come.
  private var asked: Asked?
  /// The last commands to command lines: late replies are known by their marks.
  private var marks: [(node: KeyPrefix, mark: CommandMark)] = []
  private static let mostMarks = 64
  private var markNumber = Int.random(in: 0..<1000)
  private let begun: MonotonicTime
  /// For so long after the start, replies to commands of the run before may come.
  private static let earlierRun: Duration = .seconds(600)
  private weak var shared: SharedTurn?
  /// The acknowledgement of the last sign of life to a room. The radio does not report it, but hears it.
  private var sign: (room: PublicKey, code: AckCode)?
  /// Nodes that are asked, or will be: the radio must have them.
  private var asking: [PublicKey] = []
  var questioned: Set<PublicKey> { Set(asking) }
  /// The time of the last command: a server takes another one with the same time for a repetition.
  private var lastTime: UInt32 = 0
  /// The last times that were given to nodes, as far as the radio's clock is not past them.
  private var given: [PublicKey: UInt32] = [:]
  /// So many seconds, and so often, a question waits for the radio's clock.
  private static let longestPause: Int64 = 10
  private static let mostPauses = 3

  public init(_ messenger: Messenger) { (self.messenger, begun) = (messenger, messenger.loop.now) }

  private var connection: RadioConnection { messenger.synchronizer.connection }

  /// For tests: the number of waiting questions, whether one is being asked, and a shorter patience.
  var waiting: Int { turns.waiting }
  var isAsking: Bool { turns.isTaken }
  var longestWait = longest

  /// Waits for its turn, asks, and waits for the answer.
  public func ask(
    _ question: NodeQuestion, of contact: Contact, _ priority: DeliveryPriority
  ) async throws(Refusal) -> NodeAnswer {
    asking.append(contact.key)
    defer { if let place = asking.firstIndex(of: contact.key) { asking.remove(at: place) } }
    try await enter(priority, (question.isCommandLine, contact.key))
    defer { turns.leave() }
    markNumber += 1
    let mark = CommandMark(number: markNumber, to: contact.key.prefix, by: messenger.store.radioKey?.prefix)
    let asked = Asked(question, contact, mark)
    self.asked = asked
    if question.isCommandLine {
      if marks.count >= Self.mostMarks { marks.removeFirst() }
      marks.append((contact.key.prefix, asked.mark))
    }
    let result: Result<NodeAnswer, Refusal>
    do throws(CancellationError) { result = try await answer(to: asked, priority) } catch { throw .cancelled }
    return try result.get()
  }

  private func enter(
    _ priority: DeliveryPriority, _ entry: (isCommandLine: Bool, node: PublicKey)? = nil
  ) async throws(Refusal) {
    guard connection.state == .up else { throw .linkDown }
    let (link, since) = (link, messenger.loop.now)
    var pauses = 0
    do {
      while true {
        // Before its turn, so that others are asked meanwhile.
        try await messenger.untilCalm(priority, since: since)
        try await turns.enter(priority)
        let pause = pauses < Self.mostPauses ? entry.flatMap { self.pause(before: $0.isCommandLine, to: $0.node) } : nil
        if link.isOver || (pause == nil && messenger.mayGo(priority, since: since)) { break }
        turns.leave()
        if let pause {
          pauses += 1
          try await messenger.loop.sleep(for: pause)
        }
      }
    } catch let full as LoopSemaphore<DeliveryPriority>.Full {
      throw .full("\(full.waiting) requests to other nodes are already waiting")
    } catch {
      throw .cancelled
    }
    guard link.isOver else { return }
    turns.leave()
    throw .linkDown
  }

  // MARK: Times

  /// The radio gets a post or a command with this time, which may be ahead of its clock.
  func gave(_ time: UInt32, to node: PublicKey) {
    let present = messenger.synchronizer.radioTime ?? 0
    given = given.filter { $0.value >= present }
    // A post that goes once more has its old time.
    given[node] = max(given[node] ?? 0, time)
  }

  /// Until the question has a later time than the node had last: it would ignore the question. `nil`: now, because it
  /// has, or because the radio's clock was set back.
  private func pause(before isCommandLine: Bool, to node: PublicKey) -> Duration? {
    guard let last = given[node], let present = messenger.synchronizer.radioTime, last >= present else { return nil }
    // A command has a time of its own.
    guard !isCommandLine || last > lastTime else { return nil }
    let seconds = Int64(last) - Int64(present) + 1
    return seconds <= Self.longestPause ? .seconds(seconds) : nil
  }

  /// Waits for a turn, for a program that shares the radio and itself asks another node. `node`: `nil`, it is not known.
  public func share(with node: PublicKey? = nil) async throws(Refusal) -> SharedTurn {
    try await enter(.interactive, node.map { (isCommandLine: false, node: $0) })
    let turn = SharedTurn(turns)
    shared = turn
    return turn
  }

  // MARK: Answers of the radio

  /// The link is lost: neither the present question nor a waiting one can be answered.
  public func linkLost() {
    link.isOver = true
    link = LinkLife()
    shared?.leave()
    // It counts only if the radio has taken the question.
    if let asked { asked.answer.keep(.failure(Self.lost(asked.question, asked.contact))) }
    asked = nil
  }

  public func received(_ push: Push) {
    if let sign, case .logRxData(_, _, let packet) = push { note(packet, sign.room, sign.code) }
    guard let asked, let tag = asked.tag, !asked.answer.isKept else { return unasked(push) }
    let contact = asked.contact
    if case .loginFail(contact.key.prefix) = push, case .login = asked.question {
      return asked.answer.keep(.failure(.radio("\(contact.name.string) refuses the password")))
    }
    guard let answer = asked.question.answer(in: push, from: contact, tag: tag) else { return unasked(push) }
    // Here, and not in `ask`, whose caller may have gone. What is granted without a password says nothing about ours.
    if asked.question != .whetherKnown { messenger.nodes?.took(answer, contact) }
    asked.answer.keep(.success(answer))
  }

  /// A packet that was heard while the acknowledgement of a sign of life may come.
  private func note(_ packet: [UInt8], _ room: PublicKey, _ expected: AckCode) {
    // `try?`: bytes that are no packet acknowledge nothing.
    guard let content = try? Packet(decoding: packet).content(), case .ack(let code, _) = content, code == expected
    else { return }
    sign = nil
    messenger.nodes?.roomKnowsUs(room)
  }

  /// The first 4 bytes of SHA-256(tag ‖ type 2 ‖ time ‖ our key), as a text with these bytes has. Source: `simple_room_server/MyMesh.cpp`.
  static func acknowledgement(ofSign tag: AckCode, since time: UInt32, by own: PublicKey) -> AckCode {
    let text = Text(bytes: NodeQuestion.sign(since: time))
    return .expected(time: tag.value.byteSwapped, attempt: 2, text: text, sender: own)
  }

  /// Telemetry that another program has asked for, or that came too late, is a reading, too: this push names its node. A binary response names none.
  private func unasked(_ push: Push) {
    guard case .telemetryResponse(let prefix, let data) = push, !isRepeated(prefix),
      // Without the store there is no reading.
      let stored = messenger.store.ifReadable({ try messenger.store.contact(prefix: prefix) }) ?? nil
    else { return }
    messenger.nodes?.took(.telemetry(Telemetry(decoding: data)), stored.contact)
  }

  /// A push of the radio may come twice.
  private func isRepeated(_ prefix: KeyPrefix) -> Bool {
    guard let asked, case .telemetry = asked.question else { return false }
    return asked.answer.isKept && asked.contact.key.prefix == prefix
  }

  /// A reply of a remote CLI comes like a message. True: it answers a command of this gateway, perhaps too late. Then it
  /// is for the one who asked, and is stored nowhere: it may contain a password. Others come from the same node: those
  /// to commands of programs that share the radio.
  public func takes(_ message: QueuedMessage) -> Bool {
    guard case .contact(let reply) = message, reply.textType == .cliData else { return false }
    guard let known = marks.last(where: { $0.node == reply.sender && $0.mark.reply(in: reply.text) != nil }) else {
      return messenger.loop.now - begun < Self.earlierRun
        && CommandMark.isOwn(reply.text, of: reply.sender, to: messenger.store.radioKey?.prefix)
    }
    if let asked, asked.mark == known.mark, let text = asked.mark.reply(in: reply.text) {
      asked.answer.keep(.success(.cli(text)))
    }
    return true
  }

  // MARK: One question

  private func answer(
    to asked: Asked, _ priority: DeliveryPriority
  ) async throws(CancellationError) -> Result<NodeAnswer, Refusal> {
    let path = asked.contact.outPath?.bytes.count
    let bytes = asked.question.length(path: path ?? 0)
    let region = asked.question.isFlooded(hasPath: path != nil) ? messenger.regionBytes() : 0
    let airtime = messenger.airtime(of: bytes + region) ?? 0
    let purpose = asked.question.purpose(priority)
    guard messenger.spend(airtime, priority, for: purpose) else {
      return .failure(.full("the hour's air time for \(priority.name) traffic is used up; try later"))
    }
    lastTime = max(messenger.synchronizer.radioTime ?? 0, lastTime &+ 1)
    let now = messenger.store.judgingNow
    guard let command = asked.question.command(to: asked.contact, time: lastTime, now: now, asked.mark) else {
      messenger.giveBack(airtime, for: purpose)
      return .failure(.invalid(cannotAsk(asked.question, asked.contact)))
    }
    if asked.question.isCommandLine { gave(lastTime, to: asked.contact.key) }
    asked.handed = connection.submit(command, .interactive)
    guard let handed = asked.handed else {
      messenger.giveBack(airtime, for: purpose)
      return .failure(.linkDown)
    }
    let sent: Sent
    let outcome = await handed.outcome()
    switch outcome {
    case .failed(.refused), .failed(.notSent): messenger.giveBack(airtime, for: purpose)
    case .failed(.linkLost) where handed.answer?.wasSent == false: messenger.giveBack(airtime, for: purpose)
    default: break
    }
    noteDoubt(asked)
    switch outcome {
    case .replied(.sent(let reply)): sent = reply
    case .failed(.notSent) where connection.isScopeStuck: return .failure(.radio(RadioConnection.stuckScope))
    case .failed(.notSent): return .failure(.silence("the radio does not answer; nothing was sent"))
    case .failed(.refused(.notFound)):
      messenger.synchronizer.radioDidNotKnow(asked.contact.key)
      return .failure(.notOnRadio(asked.contact.name.string))
    case .failed(.linkLost) where handed.answer?.wasSent == false: return .failure(.linkDown)
    case .failed(.linkLost): return .failure(Self.lost(asked.question, asked.contact))
    case .failed(.timedOut):
      return .failure(.silence("the radio does not answer; \(asked.contact.name.string) may have got the request"))
    case .failed(.refused(let error)):
      return .failure(.radio("the radio refuses: \(error.map(\.description) ?? "no reason given")"))
    default: return .failure(.radio("the radio did not accept the request"))
    }
    // Not before: a command that was not sent starts nothing anew.
    if asked.question.restarts { messenger.nodes?.does(.restarts, asked.contact.key) }
    if let since = asked.question.sinceOfSign {
      sign = connection.identity.map {
        (room: asked.contact.key, code: Self.acknowledgement(ofSign: sent.ackOrTag, since: since, by: $0.info.key))
      }
      return .success(.sent)
    }
    var limit = Self.patience(sent, atMost: longestWait)
    if asked.question.isCommandLine { limit += Self.cliExtra }
    let answer = try await asked.answer.value(within: limit, on: messenger.loop)
    if asked.contact.type == .room, asked.question != .whetherKnown, case .success? = answer {
      var known: UInt32 = 0
      // Without a password, a room answers the login of one whom it knows, also if it is older.
      if case .login(let password) = asked.question, password.bytes.isEmpty {
        known = messenger.rooms[asked.contact.key]?.known ?? 0
      }
      messenger.roomWasAsked(asked.contact.key, at: max(lastTime, known))
    }
    return answer ?? .failure(.silence(silence(asked.question, asked.contact)))
  }

  /// A room that gets the question may take no older post from then on, also if its answer is lost.
  private func noteDoubt(_ asked: Asked) {
    guard asked.contact.type == .room, asked.handed?.answer?.mayBeOnAir ?? true else { return }
    let key = asked.contact.key
    switch asked.question {
    case .login: messenger.roomMayHave(key, at: lastTime, isLogin: true)
    case .whetherKnown:
      // With a stored password it changes nothing there. Without one it is the login itself.
      guard messenger.nodes?.password(key)?.bytes.isEmpty ?? true else { return }
      messenger.roomMayHave(key, at: lastTime, isLogin: true)
    default: messenger.roomMayHave(key, at: lastTime, isLogin: false)
    }
  }

  /// How long an answer may take: a little longer than the radio suggests.
  public static func patience(_ sent: Sent, atMost longest: Duration = longest) -> Duration {
    min(max(shortest, .milliseconds(Int64(Double(sent.suggestedTimeout) * patience))), longest)
  }

  private func cannotAsk(_ question: NodeQuestion, _ contact: Contact) -> String {
    question != .setClock
      ? "this can only be asked for along a path, and none to \(contact.name.string) is known: meshpost contact path NAME --discover, or "
        + "meshpost node login NAME"
      : NodeService.noTime(messenger.store)
  }

  /// The link was lost after the radio got the question.
  private static func lost(_ question: NodeQuestion, _ contact: Contact) -> Refusal {
    let name = contact.name.string
    return question.mayRepeat
      ? .unknown("the radio's link was lost, and \(name) may have got the request: ask again when the link is back")
      : .unknown(
        "the radio's link was lost, and it is not known whether \(name) has carried out the command: "
          + "when the link is back, look before you repeat it")
  }

  private func silence(_ question: NodeQuestion, _ contact: Contact) -> String {
    let words = Self.silence(question, contact)
    // The time of a command is not the radio's.
    guard question.hasTimeOfRadio, contact.type != .chat, let time = messenger.synchronizer.isIgnoredUntil else {
      return words
    }
    let until = Self.text(time)
    return "\(words); or it ignores this radio, whose clock was ahead and was set back: nodes ignore its requests "
      + "until \(until), when they are newer than those before, or until they are restarted"
  }

  private static func text(_ time: UInt32) -> String {
    var (seconds, parts, buffer) = (time_t(time), tm(), [CChar](repeating: 0, count: 32))
    gmtime_r(&seconds, &parts)
    let count = strftime(&buffer, buffer.count, "%Y-%m-%d %H:%M UTC", &parts)
    return String(decoding: buffer.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  private static func silence(_ question: NodeQuestion, _ contact: Contact) -> String {
    let name = contact.name.string
    let stranger = "or it does not know this radio (meshpost radio advert --flood)"
    return switch (question, contact.type) {
    case (.path, .chat), (.telemetry, .chat):
      "\(name) does not answer: a companion answers only if its owner allows telemetry requests, which are denied by "
        + "default; or it is out of range, \(stranger)"
    case (.login, _): "\(name) does not answer: a wrong password, out of range, or a stale path"
    case (.cli, _), (.setClock, _):
      "\(name) does not answer, and it is not known whether it has carried out the command: look before you repeat it. "
        + "Perhaps the reply was lost, the node is out of range, this radio is not logged in as admin, or the command has no reply"
    case (.trace, _):
      "no trace came back: a hop is out of range of the next, or does not repeat packets (repeaters do, unless disabled)"
    case (_, .chat):
      "\(name) does not answer: a companion does not answer such requests; or it is out of range, \(stranger)"
    default:
      "\(name) does not answer: out of range, a stale path (meshpost contact path NAME --reset), or it does not know this radio (meshpost node login)"
    }
  }
}
