// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import MeshCrypto
import Messaging
import RadioSession
import Store
import Streams
import Sync
import Timing

/// A program that shares the radio: its frames come in, one command at a time is carried out, its replies go out.
///
/// What goes to the radio goes as the program wrote it, and the answer comes back as the radio gave it. Messages come
/// from the gateway's store, each client at its own place.
final class ClientSession {
  /// Commands that may wait for the one in hand; whoever sends more without reading is let go.
  static let maxWaiting = 64
  /// Bytes that may wait for a client to read them; beyond it is let go.
  static let maxUnread = 128 * 1024
  /// Its place is written down after so many messages, and whenever it has had all.
  static let cursorStep = 32
  /// Version 1 and 2 clients are told of messages without SNR.
  private static let unknownVersion: UInt8 = 0

  let parts: CompanionProxy.Parts
  let settings: ProxySettings
  let peer: IPAddress
  /// Under which its place is kept: the listener, its address, and which of several from there.
  let name: String
  /// The same of the radio that is attached.
  let place: String
  let stream: any ByteStream
  private let log: Log
  let connectedAt: MonotonicTime
  private var decoder = FrameStream(.toRadio)
  private var frameTimer: LoopTimer?
  /// Takes what the client sends, and writes on when it has read.
  private var task: LoopTask?
  private var waiting: [[UInt8]] = []
  private var isBusy = false
  var isOver = false
  var onEnd: (String?) -> Void = { _ in }

  var version = unknownVersion
  /// As APP_START told; empty before.
  var program = Text(bytes: [])
  private(set) var commands: UInt64 = 0
  private(set) var refusals: UInt64 = 0
  /// The last message that it has had for certain, and the one handed over after it.
  var cursor: Int64
  var handedOver: Int64?
  var uncounted = 0
  /// The frame that sets its flood scope; `nil`: the radio's default.
  var scopeFrame: [UInt8]?
  var toSign: [UInt8] = []
  var listing: ContactListing?
  var question: OpenQuestion?

  init(
    _ stream: any ByteStream, _ peer: IPAddress, name: String, place: String, cursor: Int64, _ settings: ProxySettings,
    _ parts: CompanionProxy.Parts
  ) {
    self.stream = stream
    self.peer = peer
    self.name = name
    self.place = place
    self.cursor = cursor
    self.settings = settings
    self.parts = parts
    log = parts.log.about(.client, name)
    connectedAt = parts.loop.now
  }

  func start() {
    task = parts.loop.begin {
      do {
        try await self.parts.loop.race(
          { while true { self.received(try await self.stream.read()) } },
          {
            while true {
              try await self.stream.drained()
              self.listing?.writePages()
            }
          })
      } catch {
        self.end((error as? StreamEnd)?.reason)
      }
    }
  }

  /// Lets it go.
  func end(_ words: String?) {
    guard !isOver else { return }
    isOver = true
    frameTimer?.cancel()
    task?.cancel()
    stream.close()
    question?.release()
    question = nil
    listing = nil
    keepCursor()
    onEnd(words)
  }

  // MARK: Frames

  private func received(_ bytes: [UInt8]) {
    let now = parts.loop.now
    decoder.append(bytes, now: now)
    takeFrames(now)
  }

  func takeFrames(_ now: MonotonicTime) {
    while !isOver, let frame = decoder.next(now: now) {
      guard waiting.count < Self.maxWaiting else { return end("\(waiting.count) commands sent without waiting") }
      waiting.append(frame)
    }
    // Nothing is carried out of what came along with it.
    if let fault = decoder.fault { return end(Self.words(fault)) }
    frameTimer?.cancel()
    if let deadline = decoder.deadline, !isOver {
      frameTimer = parts.loop.schedule(at: deadline) { [weak self] in
        guard let self else { return }
        self.decoder.timedOut(now: self.parts.loop.now)
        self.takeFrames(self.parts.loop.now)
      }
    }
    next()
  }

  private static func words(_ fault: FrameStream.Fault) -> String {
    switch fault {
    case .noMarker: "not the companion protocol (a web page, perhaps)"
    case .length(let length): "not the companion protocol (a frame of \(length) bytes)"
    case .unfinished: "an incomplete frame"
    }
  }

  private func next() {
    guard !isBusy, !isOver, !waiting.isEmpty else { return }
    isBusy = true
    commands &+= 1
    carryOut(waiting.removeFirst())
  }

  /// The command in hand has its answer; more than one deep in a burst would be a deep stack.
  func done() {
    guard isBusy else { return }
    isBusy = false
    parts.loop.later { [weak self] in self?.next() }
  }

  func send(_ frame: [UInt8]) {
    guard !isOver else { return }
    stream.write(SerialFraming.wrap(frame, .fromRadio))
    if stream.pendingBytes > Self.maxUnread {
      parts.loop.later { [weak self] in self?.end("over 128 KiB unread") }
    }
  }

  func reply(_ reply: Reply) {
    if case .error = reply { refusals &+= 1 }
    send(reply.encode())
    done()
  }

  /// An answer of the radio, as it came.
  func reply(raw frame: [UInt8]) {
    send(frame)
    done()
  }

  // MARK: Commands

  private func carryOut(_ frame: [UInt8]) {
    log.debug("client \(name) → \(SecretMask.hex(frame, .toRadio))")
    guard frame.count <= longestFrame, let command = try? Command(decoding: frame) else {
      // `try?`: the radio would fill a short frame with leftovers, and cut a long one.
      return reply(.error(.unsupported))
    }
    let (now, radios) = (parts.synchronizer.now, parts.synchronizer.radioTime)
    let time = now.trusted ? now.milliseconds / 1000 : radios.map { Int64($0) }
    switch ClientRoute(command, allows: settings.allows, now: time) {
    case .nextMessage: handOverMessage()
    case .start(let client): start(client, command, frame)
    case .query(let version): query(version)
    case .contacts(let since): list(since: since)
    case .scope(let scope): setScope(scope, frame)
    case .signStart, .signData, .signFinish: sign(command)
    case .radio: pass(command, frame)
    case .request(let answer): ask(command, frame, answer)
    case .danger(let danger):
      log.warning(
        "client \(name) wanted \(danger.rawValue): refused; [[proxy]] allow = [\"\(danger.rawValue)\"] permits it")
      reply(.error(.unsupported))
    case .refused(let error): reply(.error(error))
    }
  }

  private var longestFrame: Int {
    guard let version = parts.connection.identity?.device?.details?.version.string else {
      return SerialFraming.largestFrameBefore116
    }
    let isRecent = FirmwareVersion(version) >= FirmwareVersion(1, 16)
    return isRecent ? SerialFraming.largestFrame : SerialFraming.largestFrameBefore116
  }

  func pass(_ command: Command, _ frame: [UInt8]) {
    guard mayGoOnAir(command) else { return reply(.error(.tableFull)) }
    submit(command, frame) { [weak self] answer in self?.ended(command, answer) }
  }

  /// The empty slots of a radio are a channel under a key of zeros; and the hour's air time is everybody's.
  func mayGoOnAir(_ command: Command) -> Bool {
    // `try?`: a store that cannot be read forbids nothing.
    if let slot = command.slotOnAir, let channel = (try? parts.store.channel(slot: slot)) ?? nil, channel.isEmpty {
      return false
    }
    let bytes = command.bytesOnAir
    guard bytes > 0, !parts.messenger.spendShared(bytes: bytes) else { return true }
    log.info("client \(name) may not send now: the hour's air time is used up")
    return false
  }

  /// To the radio, in its scope where that counts. `done` is called with what the radio says to `command`. Without a `frame`: the command's own.
  func submit(_ command: Command, _ frame: [UInt8]?, _ done: @escaping (RadioAnswer) -> Void) {
    var group = [RadioSession.Submission(command, frame: frame)]
    if let scopeFrame, command.mayFlood {
      let scope = RadioSession.Submission(.setFloodScopeKey(.useDefault), frame: scopeFrame)
      group = [scope] + group + [RadioSession.Submission(.setFloodScopeKey(.useDefault))]
    }
    let place = group.count == 1 ? 0 : 1
    let isTaken = parts.connection.pass(group) { index, answer in if index == place { done(answer) } }
    if !isTaken { done(.linkLost) }
  }

  func ended(_ command: Command, _ answer: RadioAnswer) {
    switch answer.outcome {
    case .replied, .pushed:
      learn(command, answer.outcome)
      noteSent(command, answer.outcome)
      reply(raw: answer.frame)
    case .failed(.refused), .failed(.disabled):
      refusals &+= 1
      reply(raw: answer.frame)
    case .unanswered: done()
    case .failed, .contacts: reply(.error(.badState))
    }
  }

  /// What a client has changed the gateway knows, too.
  private func learn(_ command: Command, _ outcome: RadioSession.Outcome) {
    guard case .replied(.ok) = outcome else { return }
    let synchronizer = parts.synchronizer
    switch command {
    case .addUpdateContact(let contact): synchronizer.refresh(contact.key)
    case .resetPath(let key): synchronizer.refresh(key)
    case .removeContact(let key): synchronizer.forget(key)
    case .setChannel(let channel):
      // `try?`: what the disk refuses, the synchronizer says and mends.
      parts.loop.begin { try? await synchronizer.changed(channel) }
    case .sendSelfAdvert(let flood): parts.messenger.noteAdvert(isFlood: flood ?? false)
    default: if command.changesIdentity { parts.loop.begin { await synchronizer.refreshIdentity() } }
    }
  }

  private func start(_ client: Text, _ command: Command, _ frame: [UInt8]) {
    program = client.beforeNul
    submit(command, frame) { [weak self] answer in
      guard let self else { return }
      if case .failed = answer.outcome, let identity = self.parts.connection.identity {
        self.reply(.selfInfo(identity.info))  // the link is down: what the radio was when it was last here
      } else {
        self.ended(command, answer)
      }
      self.hint()
    }
  }

  /// The radio is told our version: it would tell the gateway less for the sake of an old client.
  private func query(_ version: UInt8) {
    self.version = version
    submit(.deviceQuery(clientVersion: RadioSession.clientVersion), nil) { [weak self] answer in
      guard let self else { return }
      switch answer.outcome {
      case .replied(.deviceInfo): self.reply(raw: self.withoutPIN(answer.frame))
      case .failed(.linkLost):
        guard let device = self.parts.connection.identity?.device else { return self.reply(.error(.badState)) }
        self.reply(raw: self.withoutPIN(Reply.deviceInfo(device).encode()))
      default: self.ended(.deviceQuery(clientVersion: version), answer)
      }
    }
  }

  /// DEVICE_INFO with a PIN of 0, unless the client may know it: bytes 4 to 7.
  private func withoutPIN(_ frame: [UInt8]) -> [UInt8] {
    guard !settings.allows.contains(.pin), frame.count >= 8 else { return frame }
    return Array(frame[..<4]) + [0, 0, 0, 0] + Array(frame[8...])
  }

  /// The radio says something by itself.
  func heard(_ push: Push, _ frame: [UInt8]) {
    question?.heard(push)
    send(frame)
  }
}

/// A question to another node that has no answer yet: no other may be asked meanwhile.
final class OpenQuestion {
  private let answer: RemoteAnswer
  private let tag: AckCode
  private let whenOver: () -> Void
  private var isOver = false

  init(_ answer: RemoteAnswer, _ tag: AckCode, _ whenOver: @escaping () -> Void) {
    self.answer = answer
    self.tag = tag
    self.whenOver = whenOver
  }

  func heard(_ push: Push) { if answer.isAnswered(by: push, tag: tag) { release() } }

  func release() {
    guard !isOver else { return }
    isOver = true
    whenOver()
  }
}
