// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import MeshCrypto
import RadioSession
import Sockets
import Store
import Sync
import Timing

/// A program that shares the radio. Its commands are executed one at a time.
///
/// Commands go to the radio unchanged, and so do answers to the client. Messages come from the gateway's store, at each
/// client's own position. `run` is the client's whole life; nothing outlives it except effects of its commands on the
/// gateway.
final class ClientSession {
  /// Maximum number of waiting commands; a client that sends more is disconnected.
  static let maxWaiting = 64
  /// Time limit for a client's first command; apps send it at once.
  static let patience: Duration = .seconds(10)
  /// Clients of versions 1 and 2 get messages without SNR.
  private static let unknownVersion: UInt8 = 0

  /// Why a client is disconnected.
  struct Disconnection: Error {
    let reason: String
  }

  let gateway: CompanionProxy.Gateway
  let settings: SharingSettings
  /// Names the client's stored position: the listener, the client's address, and its number there.
  let name: String
  let peer: IPAddress
  /// The same, with the attached radio's key.
  let place: String
  private let stream: SocketStream
  let outlet: ClientOutlet
  let log: Log
  let connectedAt: MonotonicTime
  private let waiting = Mailbox<[UInt8]>(bound: maxWaiting)
  private(set) var isOver = false
  /// The client has sent a command. A client without one gives way to others.
  private(set) var hasSpoken = false

  var version = unknownVersion
  /// From APP_START; empty before.
  var program = Text(bytes: [])
  private(set) var commands: UInt64 = 0
  var refusals: UInt64 = 0
  var position: ClientPosition
  /// The command that sets the client's flood scope; `nil`: the radio's default applies.
  var scope: RadioSession.Submission?
  /// The radio has refused the scope that the client has set last.
  var isScopeRefused = false
  var toSign: [UInt8] = []
  var turns = ClientTurns()

  init(
    _ stream: SocketStream, from peer: IPAddress, name: String, place: String, _ position: ClientPosition,
    _ settings: SharingSettings, _ gateway: CompanionProxy.Gateway
  ) {
    self.stream = stream
    outlet = ClientOutlet(stream)
    self.peer = peer
    self.name = name
    self.place = place
    self.position = position
    self.settings = settings
    self.gateway = gateway
    log = gateway.log.about(.client, name)
    connectedAt = gateway.loop.now
  }

  /// Runs until either side disconnects.
  func run() async {
    do {
      try await gateway.loop.race(
        { try await self.readCommands() },
        { try await self.carryOutCommands() },
        { [turns, gateway] in try await turns.keep(on: gateway.loop) },
        { try await self.outlet.watch() },
        { [outlet, gateway] in try await outlet.watchTaking(on: gateway.loop) })
    } catch let end as Disconnection {
      disconnect(end.reason)
    } catch {
      disconnect((error as? StreamEnd)?.reason)
    }
  }

  /// Closes the connection at once, and stores the client's position; then its task ends.
  func disconnect(_ reason: String?) {
    guard !isOver else { return }
    isOver = true
    keepLastCursor()
    outlet.close()
    turns.end()
    if let reason { gateway.tell("client \(name) disconnected: \(reason)") }
  }

  // MARK: Receiving commands

  private func readCommands() async throws {
    var decoder = FrameStream(.toRadio)
    while true {
      if let bytes = try await read(before: hasSpoken ? decoder.deadline : connectedAt + Self.patience) {
        decoder.append(bytes, now: gateway.loop.now)
      } else if !hasSpoken {
        throw Disconnection(reason: "no command within \(Int(Self.patience.inSeconds)) s")
      } else {
        decoder.timedOut(now: gateway.loop.now)
      }
      var frames: [[UInt8]] = []
      while let frame = decoder.next(now: gateway.loop.now) {
        frames.append(frame)
        guard waiting.count + frames.count <= Self.maxWaiting else {
          throw Disconnection(reason: "\(Self.maxWaiting) commands sent without waiting")
        }
      }
      // Commands that arrived together with the fault are dropped.
      if let fault = decoder.fault { throw Disconnection(reason: Self.reason(fault)) }
      hasSpoken = hasSpoken || frames.contains(where: Self.isCommand)
      // There is room: the loop above has checked that.
      for frame in frames { _ = waiting.put(frame) }
    }
  }

  private static func isCommand(_ frame: [UInt8]) -> Bool {
    // `try?`: an invalid command is answered with an error.
    frame.first.flatMap(CommandCode.init) != nil && (try? Command(decoding: frame)) != nil
  }

  /// `nil`: the deadline has passed.
  private func read(before deadline: MonotonicTime?) async throws -> [UInt8]? {
    guard let deadline else { return try await stream.read() }
    do {
      return try await gateway.loop.withTimeout(deadline - gateway.loop.now) { try await self.stream.read() }
    } catch is TimedOut {
      return nil
    }
  }

  private static func reason(_ fault: FrameStream.Fault) -> String {
    switch fault {
    case .noMarker: "not the companion protocol (a web page, perhaps)"
    case .length(let length): "not the companion protocol (a frame of \(length) bytes)"
    case .unfinished: "an incomplete frame"
    }
  }

  // MARK: Executing commands

  private func carryOutCommands() async throws {
    while let frame = try await waiting.next(), !isOver, !Task.isCancelled {
      commands &+= 1
      log.debug("client \(name) → \(SecretMask.hex(frame, .toRadio))")
      guard frame.count <= longestFrame, let command = try? Command(decoding: frame) else {
        // `try?`: the radio would pad a short frame with old bytes, and cut a long one.
        write(.reply(.error(.unsupported)))
        continue
      }
      write(try await answer(command, frame))
      if case .appStart = command { hint() }
    }
  }

  private func write(_ answer: ClientAnswer) {
    switch answer {
    case .reply(let reply):
      if case .error = reply { refusals &+= 1 }
      outlet.answer(reply.encode())
    case .frame(let frame): outlet.answer(frame)
    case .none: outlet.answer(nil)
    }
  }

  private var longestFrame: Int {
    guard let version = gateway.connection.identity?.device?.details?.version.string else {
      return SerialFraming.largestFrameBefore116
    }
    let isRecent = FirmwareVersion(version) >= FirmwareVersion(1, 16)
    return isRecent ? SerialFraming.largestFrame : SerialFraming.largestFrameBefore116
  }

  private func answer(_ command: Command, _ frame: [UInt8]) async throws -> ClientAnswer {
    let (now, radios) = (gateway.synchronizer.now, gateway.synchronizer.radioTime)
    let time = now.trusted ? now.milliseconds / 1000 : radios.map { Int64($0) }
    let store = gateway.store
    let route = ClientRoute(command, allows: settings.allows, now: time) { key in
      // An unreadable store permits nothing new.
      let stored = (store.ifReadable { try store.contact(key) }) ?? nil
      return stored.map { $0.onRadio && $0.contact.mayCommand } ?? false
    }
    switch route {
    case .nextMessage: return nextMessage()
    case .start(let client): return try await start(client, command, frame)
    case .query(let version): return try await query(version)
    case .contacts(let since): return try await contacts(since: since)
    case .scope(let scope): return try await setScope(scope, frame)
    case .signStart, .signData, .signFinish: return await sign(command)
    case .radio: return try await pass(command, frame)
    case .request(let answer): return try await askNode(command, frame, answer)
    case .danger(let danger):
      gateway.tell(
        "client \(name) requested \(danger.rawValue): refused; [[proxy]] allow = [\"\(danger.rawValue)\"] permits it")
      return .reply(.error(.unsupported))
    case .refused(let error): return .reply(.error(error))
    }
  }

  // MARK: Pushes of the radio

  func heard(_ push: Push, _ frame: [UInt8]) {
    turns.heard(push)
    outlet.push(frame)
  }
}

/// The answer to a client's command.
enum ClientAnswer {
  case reply(Reply)
  /// The radio's answer, unchanged.
  case frame([UInt8])
  /// The radio does not answer this command.
  case none
}
