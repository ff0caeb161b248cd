// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import RadioSession
import Timing
import Transport

/// Keeps the link to one radio up for ever: opens it, decodes its stream, carries out the session's actions, tries again
/// with back-off. The only place where link, decoder and session meet.
public final class RadioConnection {
  public enum State: Equatable, Sendable {
    case connecting
    case handshaking
    case up
    /// Down, and tried again at a time that the back-off chose.
    case waiting(LinkError)
  }

  /// A link that stayed up for so long was a good one: the next failure starts the back-off anew.
  private static let goodLink: Duration = .seconds(60)
  /// Between two questions to a radio that says nothing by itself lies a minute; three unanswered ones end a link.
  private static let stallLimit: Duration = .seconds(300)
  public let link: any Link
  private let loop: EventLoop
  private let log: Log
  private let wantedKey: String?
  private var decoder = SerialDecoder(.fromRadio)
  private var session = RadioSession()
  private var backoff = Backoff(first: .seconds(1), limit: .seconds(60))
  private var random = SystemRandomNumberGenerator()
  private var timer: LoopTimer?
  private var retry: LoopTimer?
  private var upSince: MonotonicTime?
  private var completions: [UInt64: (RadioSession.Outcome) -> Void] = [:]
  private var lastLogged: String?
  private var flaps = FlapLimit()
  private var contest = LinkContest()
  /// Commands that make the radio another node, and who waits until it is met as that.
  private var rebirths: Set<UInt64> = []
  private var meetings: [() -> Void] = []

  public private(set) var state: State = .connecting
  public private(set) var identity: RadioIdentity?
  /// When something last came from the radio.
  public private(set) var lastHeard: MonotonicTime?
  public private(set) var unreadableFrames = 0

  public var onReady: (RadioIdentity) -> Void = { _ in }
  public var onLost: () -> Void = {}
  /// A contact list begins: the command that asked, and how many records the radio has.
  public var onListBegan: (UInt64, UInt32) -> Void = { _, _ in }
  /// The contact list that began last, and how many contacts the radio has.
  private(set) var list: (id: UInt64, total: Int)?
  public var onContact: (UInt64, Contact) -> Void = { _, _ in }
  public var onPush: (Push) -> Void = { _ in }
  public var onUnasked: (Reply) -> Void = { _ in }
  public var onStateChange: () -> Void = {}
  /// Every frame either way, for somebody who looks on; `nil`: nobody does.
  public var onFrame: (([UInt8], FrameDirection) -> Void)?

  /// `key`: beginning of the wanted radio's public key, in hex; another radio is not taken.
  public init(_ link: any Link, key: String? = nil, on loop: EventLoop, log: Log) {
    self.link = link
    wantedKey = key
    self.loop = loop
    self.log = log.about(.link, link.name)
    link.onEvent = { [weak self] event in self?.handle(event) }
  }

  public func start() { connect() }

  /// Closes the link: the daemon ends.
  public func stop() {
    retry?.cancel()
    timer?.cancel()
    link.end()
    perform(session.linkLost())
  }

  /// Ask the radio something. `done` hears the outcome exactly once, also when the link is lost.
  /// False: the link is down or 64 commands wait already.
  @discardableResult
  public func submit(
    _ command: Command, _ priority: CommandPriority = .sync, _ done: @escaping (RadioSession.Outcome) -> Void
  ) -> UInt64? {
    let (id, actions) = session.submit(command, priority, now: loop.now)
    guard let id else { return nil }
    completions[id] = done
    if command.changesKey { rebirths.insert(id) }
    perform(actions)
    arm()
    return id
  }

  /// Asks the radio something, and returns what became of it; `.linkLost` also where it was not taken.
  public func ask(_ command: Command, _ priority: CommandPriority) async -> RadioSession.Outcome {
    await withCheckedContinuation { answer in
      if submit(command, priority, { answer.resume(returning: $0) }) == nil {
        answer.resume(returning: .failed(.linkLost))
      }
    }
  }

  /// Commands that go out one directly after the other. `done` hears the outcome of each, by its place. False: as above.
  public func submit(
    group: [RadioSession.Submission], _ priority: CommandPriority,
    _ done: @escaping (Int, RadioSession.Outcome) -> Void
  ) -> Bool {
    let (ids, actions) = session.submit(group: group, priority, now: loop.now)
    guard let ids else { return false }
    for (place, id) in ids.enumerated() {
      completions[id] = { done(place, $0) }
      if group[place].command.changesKey { rebirths.insert(id) }
    }
    perform(actions)
    arm()
    return true
  }

  /// Nothing of what should happen happens: up, and neither heard of nor given up; down, and not about to be tried again. That is never
  /// the radio's doing. `nil`: it gets on.
  public func stalledReason(now: MonotonicTime) -> String? {
    switch state {
    case .up:
      guard let lastHeard, now - lastHeard > Self.stallLimit else { return nil }
      return "the radio is silent and was not asked for \(Int((now - lastHeard).inSeconds)) s"
    case .handshaking:
      guard let upSince, now - upSince > Self.stallLimit else { return nil }
      return "the handshake does not end"
    case .waiting:
      guard !link.healsItself, retry?.isScheduled != true else { return nil }
      return "the radio's link is down and is not tried again"
    case .connecting: return nil
    }
  }

  /// All that was received is on disk: whoever comes after us need not hear it again.
  public func settle() { link.settled(pending: decoder.pending) }

  /// The frame that came, while something is told of it.
  public private(set) var frameInHand: [UInt8] = []

  private func connect() {
    retry?.cancel()
    change(.connecting)
    link.open()
  }

  private func handle(_ event: LinkEvent) {
    switch event {
    case .up:
      decoder.reset()
      upSince = loop.now
      change(.handshaking)
      perform(session.linkUp(now: loop.now))
    case .bytes(let bytes): received(bytes)
    case .frame(let frame): received(frame: frame)
    case .down(let error): lost(error, mayRetry: !link.healsItself)
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
    onFrame?(frame, .fromRadio)
    frameInHand = frame
    perform(session.received(frame, now: now))
    frameInHand = []
  }

  private func perform(_ actions: [RadioSession.Action]) {
    for action in actions {
      switch action {
      case .send(let frame):
        log.debug("radio ← \(SecretMask.hex(frame, .toRadio))")
        onFrame?(frame, .toRadio)
        link.send(link.carriesFrames ? frame : SerialFraming.wrap(frame, .toRadio))
      case .sendRaw(let bytes): if !link.carriesFrames { link.send(bytes) }
      case .tryOtherLineSettings:
        if link.tryOtherLineSettings() { log.info("\(link.name): no answer, trying with DTR the other way") }
      case .ready(let identity): ready(identity)
      case .contact(let id, let contact): onContact(id, contact)
      case .listBegan(let id, let total):
        list = (id, Int(total))
        onListBegan(id, total)
      case .completed(let id, let outcome):
        completed(id, outcome)
        // What is left of the actions is of a session that is over.
        if rebirths.remove(id) != nil, case .replied(.ok) = outcome { return beginAnew() }
      case .push(let push): onPush(push)
      case .unasked(let reply): onUnasked(reply)
      case .glitch(let error):
        unreadableFrames += 1
        log.debug("radio: unreadable frame: \(error)")
      case .dropLink(let reason): drop(reason)
      }
    }
  }

  /// What the radio says of itself is remembered, whoever asked.
  private func completed(_ id: UInt64, _ outcome: RadioSession.Outcome) {
    switch outcome {
    case .replied(.selfInfo(let info)): identity?.info = info
    case .replied(.deviceInfo(let device)): identity?.device = device
    default: break
    }
    completions.removeValue(forKey: id)?(outcome)
  }

  /// The radio is another node now: what waits for it was said as the last one, and fails as with a lost link.
  private func beginAnew() {
    guard state == .up else { return }
    log.notice("the radio has another private key: it is met anew")
    change(.handshaking)
    perform(session.linkLost())
    onLost()
    upSince = loop.now
    perform(session.linkUp(now: loop.now))
    arm()
  }

  /// Calls once the radio has been met the next time, or cannot be.
  public func whenMet(_ action: @escaping () -> Void) { meetings.append(action) }

  private func met() {
    let waiting = meetings
    meetings = []
    for action in waiting { action() }
  }

  private func ready(_ identity: RadioIdentity) {
    if let wantedKey, !identity.info.key.hex.hasPrefix(wantedKey) {
      let words = "the radio on \(link.name) is \(identity.info.name.string), key \(identity.info.key.hex.prefix(12)), "
      link.close(isBad: true)
      return lost(.wrongRadio(words + "and not the one with the key \(wantedKey)"), mayRetry: true)
    }
    self.identity = identity
    change(.up)
    onReady(identity)
    met()
  }

  private func drop(_ reason: RadioSession.DropReason) {
    link.close(isBad: true)
    let words =
      switch reason {
      case .handshakeUnanswered: "\(link.name) is open, but no radio answers on it"
      case .unresponsive: "the radio on \(link.name) stopped answering"
      case .garbage: "\(link.name) sends what is not the companion protocol"
      }
    lost(.radio(words), mayRetry: true)
  }

  /// `mayRetry`: it is ours to open the link again; one that heals itself tells when it is up.
  private func lost(_ failure: LinkError, mayRetry: Bool) {
    let wasUp = state == .up
    let (error, truce) = judged(failure)
    if let since = upSince, wasUp, loop.now - since > Self.goodLink { backoff.reset() }
    upSince = nil
    change(.waiting(error))
    perform(session.linkLost())
    if wasUp { onLost() }
    met()
    guard mayRetry else { return }
    let wait = truce ?? backoff.next(using: &random)
    retry?.cancel()
    retry = loop.schedule(after: wait) { [weak self] in self?.connect() }
    link.watchForReturn { [weak self] in
      guard let self, case .waiting = self.state else { return }
      self.connect()
    }
  }

  /// Whether the link was lost to somebody else, and how long the radio is left to them then.
  private func judged(_ failure: LinkError) -> (LinkError, truce: Duration?) {
    guard let upSince else { return (failure, nil) }
    let lifetime = loop.now - upSince
    guard case .closedByPeer(let peer) = failure else {
      contest.lost(after: lifetime)
      return (failure, nil)
    }
    let truce = contest.closed(after: lifetime, using: &random)
    return (truce == nil ? failure : .takenAway(peer), truce)
  }

  /// Each state is logged once, however often it is entered anew for the same reason.
  private func change(_ next: State) {
    guard state != next else { return }
    state = next
    switch next {
    case .waiting(let error):
      if lastLogged != "\(error)" { tell(.warning, "radio link down: \(error). \(error.remedy)") }
      lastLogged = "\(error)"
    case .up:
      let name = identity?.info.name.string ?? "?"
      let version = identity?.device?.details?.version.string ?? "unknown version"
      tell(.notice, "radio link up: \(link.name), \(name), \(version)")
      lastLogged = nil
    case .connecting, .handshaking: break
    }
    onStateChange()
  }

  /// Changes come too often to be told one by one.
  public var isFlapping: Bool { flaps.isQuiet }

  private func tell(_ level: Log.Level, _ words: String) {
    let (isWorthIt, missed) = flaps.changed(now: loop.now)
    if missed > 0 { log.notice("radio link: \(missed) more changes in the last hour") }
    log.log(isWorthIt ? level : .debug, words)
    if isWorthIt, flaps.isQuiet { log.notice("radio link: it comes and goes; further changes are counted, not told") }
  }

  /// One timer for the session's and the decoder's deadlines.
  private func arm() {
    timer?.cancel()
    guard let next = [session.deadline, decoder.deadline].compactMap({ $0 }).min() else { return }
    timer = loop.schedule(at: next) { [weak self] in self?.expire() }
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
  /// The radio has another public key after it.
  fileprivate var changesKey: Bool { if case .importPrivateKey = self { true } else { false } }
}
