// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import RadioSession
import Timing
import Transport

/// Keeps the link to one radio up: opens it, decodes its stream, carries out the session's actions, and opens a lost
/// link again with back-off. The only place where link, decoder and session meet.
///
/// `run` is this sequence. Each frame is dispatched as soon as it is decoded, without waiting for a task.
public final class RadioConnection {
  public enum State: Equatable, Sendable {
    case connecting
    case handshaking
    case up
    /// Down; the back-off determines the next attempt.
    case waiting(LinkError)
  }

  /// A silent radio is queried once a minute, and three unanswered queries end the link. If nothing comes for this
  /// long, those queries did not happen.
  private static let stallLimit: Duration = .seconds(300)
  public let link: any Link
  private let loop: EventLoop
  private let log: Log
  private let wantedKey: String?
  private var decoder: SerialDecoder
  /// The decoder has the beginning of a frame whose rest comes over the link that is being opened.
  private var hasBegunFrame = false
  private var session = RadioSession()
  private var attempts = LinkAttempts()
  private var news = LinkNews()
  /// Kept when the current attempt fails. Its value: how long to leave the radio to another program.
  private var attempt = Promise<Duration?>()
  /// The next time to check the session and the decoder.
  private let alarm = Alarm()
  private(set) var questions: [UInt64: RadioQuestion] = [:]
  /// The command that a link took with it: the others never reached the radio.
  private var lostInFlight: UInt64?
  /// Kept when the next handshake is done or has failed. Read this property before you cause the handshake: each
  /// handshake has a new promise.
  public private(set) var meeting = Promise<Void>()

  public private(set) var state: State = .connecting
  public private(set) var identity: RadioIdentity?
  /// When the radio last sent something.
  public private(set) var lastHeard: MonotonicTime?
  /// When it was first sent something after its last frame.
  private var silentSince: MonotonicTime?
  public private(set) var unreadableFrames = 0

  /// Stores the radio's data. Each call happens when the frame is decoded, in the radio's order: storing does not
  /// depend on the task that asked, and a cancelled task loses nothing.
  weak var synchronizer: Synchronizer?
  /// Observes all frames; usually `nil`.
  public weak var tap: (any FrameTap)?

  /// `key`: the beginning of the wanted radio's public key, in hex; other radios are refused.
  public init(_ link: any Link, key: String? = nil, on loop: EventLoop, log: Log) {
    self.link = link
    decoder = SerialDecoder(.fromRadio, limit: link.frameTimeout)
    wantedKey = key
    self.loop = loop
    self.log = log.about(.link, link.name)
    link.onEvent = { [weak self] event in self?.handle(event) }
  }

  /// Keeps the link up until the task is cancelled; then closes the link.
  public func run() async throws(CancellationError) {
    defer {
      link.end()
      failAll()
    }
    do {
      try await loop.race({ try await self.reopen() }, { try await self.keepTime() })
    } catch {
      throw CancellationError()
    }
  }

  /// Opens the link, waits until it fails, pauses, repeats.
  private func reopen() async throws(CancellationError) {
    while true {
      attempt = Promise()
      change(.connecting)
      link.open()
      let truce = try await attempt.value()
      var random = SystemRandomNumberGenerator()
      try await pause(attempts.wait(truce, now: loop.now, using: &random))
    }
  }

  /// Returns after this time, or earlier if the link reports that another attempt is worthwhile.
  private func pause(_ wait: Duration) async throws(CancellationError) {
    let returned = Promise<Void>()
    link.watchForReturn { returned.keep(()) }
    _ = try await returned.value(within: wait, on: loop)
  }

  /// Reason for sending nothing: the radio would transmit into another region than its own.
  public static let stuckScope = "the radio does not go back to its default region: power-cycle it"
  public var isScopeStuck: Bool { session.isScopeStuck }
  /// How a command is flooded in this scope by the attached radio.
  public func setting(for scope: FloodScopeOverride) -> ScopeSetting { session.setting(for: scope) }
  private var wasScopeStuck = false

  // MARK: Asking

  /// Sends a command, and returns its result; `.linkLost` also if the command was not accepted.
  public func ask(_ command: Command, _ priority: CommandPriority) async -> RadioSession.Outcome {
    guard let question = submit(command, priority) else { return .failed(.linkLost) }
    return await question.outcome()
  }

  /// Queues a command. Returns its question; `nil`: the link is down, or 64 commands wait already.
  public func submit(_ command: Command, _ priority: CommandPriority) -> RadioQuestion? {
    submit(group: [.init(command)], priority)?.first
  }

  /// Queues commands that are sent directly one after the other. `nil`: as above. `done` gets each answer with the
  /// radio's own frame when it is decoded, so answers keep their order among everything that the radio sends; `part`
  /// gets the frames of a contact list before its last: for another program that shares the radio.
  public func submit(
    group: [RadioSession.Submission], _ priority: CommandPriority, part: (([UInt8]) -> Void)? = nil,
    _ done: ((Int, RadioAnswer) -> Void)? = nil
  ) -> [RadioQuestion]? {
    let (ids, actions) = session.submit(group: group, priority, now: loop.now)
    guard let ids else { return nil }
    let asked = group.enumerated().map { place, submission in
      RadioQuestion(submission.command, part: part, done.map { done in { done(place, $0) } })
    }
    for (id, question) in zip(ids, asked) { questions[id] = question }
    perform(actions)
    arm()
    return asked
  }

  /// A fault of this program that stops the connection: the link is up but no query notices the silence, or the link is
  /// down and no attempt is planned. `nil`: there is none.
  public func stalledReason(now: MonotonicTime) -> String? {
    switch state {
    case .up:
      guard let lastHeard, now - lastHeard > Self.stallLimit else { return nil }
      return "the radio is silent and was not queried for \(Int((now - lastHeard).inSeconds)) s"
    case .handshaking:
      guard let upSince = attempts.upSince, now - upSince > Self.stallLimit else { return nil }
      return "the handshake is stuck"
    case .waiting:
      guard !link.healsItself, attempts.next.map({ now > $0 + Self.stallLimit }) ?? true else { return nil }
      return "the radio's link is down and is not retried"
    case .connecting: return nil
    }
  }

  /// The radio was restarted, which ended its links: no other program has taken it.
  func radioWasRestarted() { attempts.forgetContest() }
  /// `start`: the latest possible one, as the radio tells it over this link.
  func radioStarted(at start: MonotonicTime) { attempts.radioStarted(at: start) }
  /// Since this was last asked.
  func wasTaken() -> Bool { attempts.wasTaken() }

  /// The caller has stored everything received: the next process does not need it again.
  public func settle() { link.settled(pending: decoder.pending) }

  // MARK: Received data

  private func handle(_ event: LinkEvent) {
    switch event {
    case .leftOver(let bytes, let continues): takeLeftOver(bytes, continues)
    case .up:
      if !hasBegunFrame { decoder.reset() }
      hasBegunFrame = false
      attempts.linkUp(now: loop.now)
      change(.handshaking)
      perform(session.linkUp(now: loop.now))
    case .bytes(let bytes): received(bytes)
    case .frame(let frame): received(frame: frame)
    case .down(let error): lost(error, healsItself: link.healsItself, byLine: true)
    }
    arm()
  }

  /// The messages count, and the answers to the questions for them. The other answers are no answers to this handshake; and if the port was closed
  /// meanwhile, they may be another radio's.
  private func takeLeftOver(_ bytes: [UInt8], _ continues: Bool) {
    let now = loop.now
    decoder.reset()
    decoder.append(bytes, now: now)
    while let frame = decoder.next(now: now) {
      log.debug("radio → \(SecretMask.hex(frame, .fromRadio)), from before")
      // `try?`: what cannot be decoded is of no use.
      guard let decoded = try? RadioFrame(decoding: frame) else { continue }
      switch decoded {
      case .reply(.message(let message)): synchronizer?.told(.message(message), wasAsked: false)
      case .reply(.noMoreMessages) where continues: synchronizer?.told(.noMoreMessages, wasAsked: false)
      case .push(let push) where continues: synchronizer?.heard(push, in: frame)
      default: break
      }
    }
    hasBegunFrame = continues
  }

  private func received(_ bytes: [UInt8]) {
    let now = loop.now
    lastHeard = now
    decoder.append(bytes, now: now)
    while let frame = decoder.next(now: now) {
      received(frame: frame)
      if case .waiting = state { return }
    }
  }

  private func received(frame: [UInt8]) {
    let now = loop.now
    (lastHeard, silentSince) = (now, nil)
    log.debug("radio → \(SecretMask.hex(frame, .fromRadio))")
    tap?.passed(frame, .fromRadio)
    perform(session.received(frame, now: now), after: frame)
  }

  /// `frame`: the frame that caused the actions.
  private func perform(_ actions: [RadioSession.Action], after frame: [UInt8] = []) {
    var mayBeAnother = false
    for action in actions {
      switch action {
      case .send(let frame):
        log.debug("radio ← \(SecretMask.hex(frame, .toRadio))")
        tap?.passed(frame, .toRadio)
        silentSince = silentSince ?? loop.now
        link.send(link.carriesFrames ? frame : SerialFraming.wrap(frame, .toRadio))
      case .sendRaw(let bytes): if !link.carriesFrames { link.send(bytes) }
      case .tryOtherLineSettings:
        if link.tryOtherLineSettings() { log.info("\(link.name): no answer, retrying with DTR inverted") }
      case .ready(let identity): ready(identity)
      case .listBegan(let id, let total):
        questions[id]?.part?(frame)
        synchronizer?.listBegan(total, of: questions[id])
      case .contact(let id, let contact):
        questions[id]?.part?(frame)
        synchronizer?.listed(contact, of: questions[id])
      case .completed(let id, let outcome):
        let known = identity?.info.key
        let command = completed(id, outcome, frame)
        // The remaining actions belong to the session that has ended.
        if command?.changesKey == true && outcome == .replied(.ok) || identity?.info.key != known { return beginAnew() }
        if command?.changesKey == true, outcome == .failed(.timedOut) { mayBeAnother = true }
      case .push(let push): synchronizer?.heard(push, in: frame)
      case .unasked(let reply): synchronizer?.told(reply, wasAsked: false)
      case .glitch(let error):
        unreadableFrames += 1
        log.debug("radio: unreadable frame: \(error)")
      case .dropLink(let reason): drop(reason)
      }
    }
    if mayBeAnother { return beginAnew("may have") }
    guard isScopeStuck != wasScopeStuck else { return }
    wasScopeStuck = isScopeStuck
    synchronizer?.connectionChanged()
  }

  /// Lets the synchronizer store the radio's answer before the question gets it.
  private func completed(_ id: UInt64, _ outcome: RadioSession.Outcome, _ frame: [UInt8]) -> Command? {
    if case .replied(let reply) = outcome {
      switch reply {
      case .selfInfo(let info):
        let isRenamed = identity.map { $0.info.name != info.name } ?? false
        identity?.info = info
        if isRenamed { synchronizer?.connectionChanged() }
      case .deviceInfo(let device): identity?.device = device
      default: synchronizer?.told(reply, wasAsked: true)
      }
    }
    let question = questions.removeValue(forKey: id)
    if let question { synchronizer?.answered(question.command, outcome) }
    let wasSent = outcome != .failed(.linkLost) || id == lostInFlight
    question?.answered(RadioAnswer(outcome: outcome, frame: frame, wasSent: wasSent))
    return question?.command
  }

  /// The link is lost.
  private func failAll() {
    lostInFlight = session.idInFlight
    perform(session.linkLost())
    lostInFlight = nil
  }

  /// The radio is another node now: waiting commands were meant for the previous one, and fail as if the link was lost.
  private func beginAnew(_ has: String = "has") {
    guard state == .up else { return }
    log.notice("the radio \(has) a different private key: reconnecting")
    change(.handshaking)
    failAll()
    synchronizer?.lost(LinkEnd(at: loop.now))
    attempts.linkUp(now: loop.now)
    perform(session.linkUp(now: loop.now))
    arm()
  }

  private func met() {
    let kept = meeting
    meeting = Promise()
    kept.keep(())
  }

  private func ready(_ identity: RadioIdentity) {
    if let wantedKey, !identity.info.key.hex.hasPrefix(wantedKey) {
      let words = "the radio on \(link.name) is \(identity.info.name.string), key \(identity.info.key.hex.prefix(12)), "
      link.close(isBad: true)
      return lost(.wrongRadio(words + "not the radio with the key \(wantedKey)"))
    }
    self.identity = identity
    change(.up)
    synchronizer?.met(identity)
    met()
  }

  private func drop(_ reason: RadioSession.DropReason) {
    link.close(isBad: true)
    let words =
      switch reason {
      case .handshakeUnanswered: "\(link.name) is open, but no radio answers on it"
      case .unresponsive: "the radio on \(link.name) stopped answering"
      case .garbage: "\(link.name) sends data that is not the companion protocol"
      }
    lost(.radio(words))
  }

  // MARK: The end of a link

  /// Waiting and new questions fail at once. `healsItself`: the link reports when it is up again, and is not reopened.
  /// `byLine`: the link has ended, and was not closed here.
  private func lost(_ failure: LinkError, healsItself: Bool = false, byLine: Bool = false) {
    let wasUp = state == .up
    var random = SystemRandomNumberGenerator()
    let (error, truce) = attempts.lost(
      failure, wasMet: wasUp, healsItself: healsItself, now: loop.now, using: &random)
    decoder.reset()
    change(.waiting(error))
    failAll()
    if wasUp {
      // Bluetooth reports the end of a link late.
      let limit: Duration = link.carriesFrames ? .seconds(10) : .seconds(1)
      synchronizer?.lost(LinkEnd(at: loop.now, silentSince: silentSince, noticedWithin: byLine ? limit : nil))
    }
    silentSince = nil
    met()
    if !healsItself { attempt.keep(truce) }
  }

  /// Changes the state and logs it, once for each reason.
  private func change(_ next: State) {
    guard state != next else { return }
    state = next
    switch next {
    case .waiting(let error):
      if news.isNews(error) { tell(.warning, "radio link down: \(error). \(error.remedy)") }
    case .up:
      let name = identity?.info.name.string ?? "?"
      let version = identity?.device?.details?.version.string ?? "unknown version"
      tell(.notice, "radio link up: \(link.name), \(name), \(version)")
      news.linkUp()
    case .connecting, .handshaking: break
    }
    synchronizer?.connectionChanged()
  }

  private func tell(_ level: Log.Level, _ words: String) { news.tell(level, words, to: log, now: loop.now) }

  /// The state changes too often for a log line each.
  public var isFlapping: Bool { news.isFlapping }

  /// Moves the alarm to the earliest deadline.
  private func arm() {
    alarm.set([session.deadline, decoder.deadline].compactMap { $0 }.min())
  }

  private func keepTime() async throws(CancellationError) {
    while true {
      try await alarm.wait(on: loop)
      if let time = alarm.time, time <= loop.now { expire() }
    }
  }

  private func expire() {
    let now = loop.now
    decoder.timedOut(now: now)
    while let frame = decoder.next(now: now) { received(frame: frame) }
    perform(session.timedOut(now: now))
    arm()
  }
}

extension Command {
  /// The command gives the radio another public key.
  fileprivate var changesKey: Bool { if case .importPrivateKey = self { true } else { false } }
}
