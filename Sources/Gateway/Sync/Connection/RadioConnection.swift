// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import RadioSession
import Timing
import Transport

/// Keeps the link to one radio up for ever: opens it, decodes its stream, carries out the session's actions, tries again
/// with back-off. The only place where link, decoder and session meet.
///
/// `run` is the order of it. What comes over the link is dispatched at once, frame by frame, and waits for no task.
public final class RadioConnection {
  public enum State: Equatable, Sendable {
    case connecting
    case handshaking
    case up
    /// Down, and tried again at a time that the back-off chose.
    case waiting(LinkError)
  }

  /// A silent radio is asked once a minute; three unanswered questions end the link.
  private static let stallLimit: Duration = .seconds(300)
  public let link: any Link
  private let loop: EventLoop
  private let log: Log
  private let wantedKey: String?
  private var decoder = SerialDecoder(.fromRadio)
  private var session = RadioSession()
  private var attempts = LinkAttempts()
  private var news = LinkNews()
  /// Of the current attempt: how long to leave the radio to another program if it fails.
  private var attempt = Promise<Duration?>()
  /// When to look at the session and the decoder.
  private let alarm = Alarm()
  private var questions: [UInt64: RadioQuestion] = [:]
  /// Kept when the radio is met the next time, or cannot be. Take it before asking for what leads there.
  public private(set) var meeting = Promise<Void>()

  public private(set) var state: State = .connecting
  public private(set) var identity: RadioIdentity?
  /// When something last came from the radio.
  public private(set) var lastHeard: MonotonicTime?
  public private(set) var unreadableFrames = 0

  weak var delegate: (any RadioDelegate)?
  /// An observer; usually none.
  public weak var tap: (any FrameTap)?

  /// `key`: beginning of the wanted radio's public key, in hex; another radio is not taken.
  public init(_ link: any Link, key: String? = nil, on loop: EventLoop, log: Log) {
    self.link = link
    wantedKey = key
    self.loop = loop
    self.log = log.about(.link, link.name)
    link.onEvent = { [weak self] event in self?.handle(event) }
  }

  /// Keeps the link to the radio until it is cancelled; then the link is closed.
  public func run() async throws(CancellationError) {
    defer {
      link.end()
      perform(session.linkLost())
    }
    do {
      try await loop.race({ try await self.reopen() }, { try await self.keepTime() })
    } catch {
      throw CancellationError()
    }
  }

  /// Opens the link, leaves it to what comes over it for as long as it lives, and waits before it is opened again.
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

  /// Waits so long, or until the link says that another attempt is worthwhile.
  private func pause(_ wait: Duration) async throws(CancellationError) {
    let returned = Promise<Void>()
    link.watchForReturn { returned.keep(()) }
    _ = try await returned.value(within: wait, on: loop)
  }

  /// Why nothing goes out, where the radio would send it into another region than its own.
  public static let stuckScope = "the radio does not go back to its default region: power-cycle it"
  public var isScopeStuck: Bool { session.isScopeStuck }
  private var wasScopeStuck = false

  // MARK: Asking

  /// Asks the radio, and returns what became of it; `.linkLost` also where the command was not taken.
  public func ask(_ command: Command, _ priority: CommandPriority) async -> RadioSession.Outcome {
    guard let question = submit(command, priority) else { return .failed(.linkLost) }
    return await question.outcome()
  }

  /// Gives the radio a command, whose answer the question will have. `nil`: the link is down or 64 commands wait already.
  public func submit(_ command: Command, _ priority: CommandPriority) -> RadioQuestion? {
    submit(group: [.init(command)], priority)?.first
  }

  /// Commands that go out one directly after the other. `nil`: as above.
  public func submit(group: [RadioSession.Submission], _ priority: CommandPriority) -> [RadioQuestion]? {
    submit(group.map { RadioQuestion($0.command) }, group, priority)
  }

  /// Commands of another program that shares the radio, which gets the radio's own frames where they are decoded: they stand in the order of
  /// all else that the radio says. `part` is called with those of a contact list before its end. False: as above.
  public func pass(
    _ group: [RadioSession.Submission], part: (([UInt8]) -> Void)? = nil,
    _ done: @escaping (Int, RadioAnswer) -> Void
  ) -> Bool {
    let questions = group.enumerated().map { place, submission in
      RadioQuestion(submission.command, part: part) { done(place, $0) }
    }
    return submit(questions, group, .client) != nil
  }

  private func submit(
    _ asked: [RadioQuestion], _ group: [RadioSession.Submission], _ priority: CommandPriority
  ) -> [RadioQuestion]? {
    let (ids, actions) = session.submit(group: group, priority, now: loop.now)
    guard let ids else { return nil }
    for (id, question) in zip(ids, asked) { questions[id] = question }
    perform(actions)
    arm()
    return asked
  }

  /// Why the connection makes no progress: up, and neither heard of nor given up; down, and not about to be tried again. That is never
  /// the radio's doing. `nil`: it does.
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

  /// Everything received is on disk: the next process does not need it again.
  public func settle() { link.settled(pending: decoder.pending) }

  // MARK: What comes

  private func handle(_ event: LinkEvent) {
    switch event {
    case .up:
      decoder.reset()
      attempts.linkUp(now: loop.now)
      change(.handshaking)
      perform(session.linkUp(now: loop.now))
    case .bytes(let bytes): received(bytes)
    case .frame(let frame): received(frame: frame)
    case .down(let error): lost(error, healsItself: link.healsItself)
    }
    arm()
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
    lastHeard = now
    log.debug("radio → \(SecretMask.hex(frame, .fromRadio))")
    tap?.passed(frame, .fromRadio)
    perform(session.received(frame, now: now), after: frame)
  }

  /// `frame`: what has led to it.
  private func perform(_ actions: [RadioSession.Action], after frame: [UInt8] = []) {
    for action in actions {
      switch action {
      case .send(let frame):
        log.debug("radio ← \(SecretMask.hex(frame, .toRadio))")
        tap?.passed(frame, .toRadio)
        link.send(link.carriesFrames ? frame : SerialFraming.wrap(frame, .toRadio))
      case .sendRaw(let bytes): if !link.carriesFrames { link.send(bytes) }
      case .tryOtherLineSettings:
        if link.tryOtherLineSettings() { log.info("\(link.name): no answer, retrying with DTR inverted") }
      case .ready(let identity): ready(identity)
      case .listBegan(let id, let total):
        questions[id]?.part?(frame)
        delegate?.listBegan(total, of: questions[id])
      case .contact(let id, let contact):
        questions[id]?.part?(frame)
        delegate?.listed(contact, of: questions[id])
      case .completed(let id, let outcome):
        let command = completed(id, outcome, frame)
        // What is left of the actions is of a session that is over.
        if command?.changesKey == true, case .replied(.ok) = outcome { return beginAnew() }
      case .push(let push): delegate?.heard(push, in: frame)
      case .unasked(let reply): delegate?.told(reply, wasAsked: false)
      case .glitch(let error):
        unreadableFrames += 1
        log.debug("radio: unreadable frame: \(error)")
      case .dropLink(let reason): drop(reason)
      }
    }
    guard isScopeStuck != wasScopeStuck else { return }
    wasScopeStuck = isScopeStuck
    delegate?.connectionChanged()
  }

  /// The radio's answer is stored before the caller gets it.
  private func completed(_ id: UInt64, _ outcome: RadioSession.Outcome, _ frame: [UInt8]) -> Command? {
    if case .replied(let reply) = outcome {
      switch reply {
      case .selfInfo(let info): identity?.info = info
      case .deviceInfo(let device): identity?.device = device
      default: delegate?.told(reply, wasAsked: true)
      }
    }
    let question = questions.removeValue(forKey: id)
    question?.answered(RadioAnswer(outcome: outcome, frame: frame))
    return question?.command
  }

  /// The radio is another node now: what waits for it was said as the last one, and fails as with a lost link.
  private func beginAnew() {
    guard state == .up else { return }
    log.notice("the radio has a different private key: reconnecting")
    change(.handshaking)
    perform(session.linkLost())
    delegate?.lost()
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
    delegate?.met(identity)
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

  /// Questions from now on fail at once. `healsItself`: the link reports when it is up again, and is not reopened.
  private func lost(_ failure: LinkError, healsItself: Bool = false) {
    let wasUp = state == .up
    var random = SystemRandomNumberGenerator()
    let (error, truce) = attempts.lost(
      failure, wasMet: wasUp, healsItself: healsItself, now: loop.now, using: &random)
    decoder.reset()
    change(.waiting(error))
    perform(session.linkLost())
    if wasUp { delegate?.lost() }
    met()
    if !healsItself { attempt.keep(truce) }
  }

  /// Logs each state once, however often it is entered for the same reason.
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
    delegate?.connectionChanged()
  }

  private func tell(_ level: Log.Level, _ words: String) { news.tell(level, words, to: log, now: loop.now) }

  /// Changes come too often to be told one by one.
  public var isFlapping: Bool { news.isFlapping }

  /// What waits for its time may be another now.
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
