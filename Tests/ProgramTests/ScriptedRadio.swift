// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Foundation
import Glibc
import MeshCrypto
import Synchronization
import Timing

/// A radio on a TCP port that knows each step of a send, and lets a test act at it: kill the gateway, lose an
/// acknowledgement, answer late. It has one contact, and plays its recipient, too.
final class ScriptedRadio: Sendable {
  /// What the mesh saw.
  struct Transmission: Equatable {
    let text: String
    let time: UInt32
    let attempt: UInt8
  }

  static let own = PublicKey(bytes: [UInt8](repeating: 0x11, count: 32)) ?? { fatalError("32 bytes") }()
  static let friend = PublicKey(bytes: [UInt8](repeating: 0x22, count: 32)) ?? { fatalError("32 bytes") }()

  private struct State {
    var transmissions: [Transmission] = []
    var client: Int32 = -1
    var resets = 0
  }

  let port: UInt16
  private let listener: Int32
  private let state = Mutex(State())
  /// What to do with a message: called for each SEND_TXT_MSG, on the radio's thread.
  private let onText: @Sendable (ScriptedRadio, OutgoingText) -> Void

  init(_ onText: @escaping @Sendable (ScriptedRadio, OutgoingText) -> Void) throws {
    (listener, port) = try LoopbackSocket.listen(on: 0)
    _ = fcntl(listener, F_SETFL, fcntl(listener, F_GETFL) & ~O_NONBLOCK)
    self.onText = onText
    Thread.detachNewThread { [weak self, listener] in
      while true {
        let client = accept(listener, nil, nil)
        guard client >= 0 else { return }
        _ = fcntl(client, F_SETFL, fcntl(client, F_GETFL) & ~O_NONBLOCK)
        self?.state.withLock { $0.client = client }
        self?.serve(client)
        self?.state.withLock { $0.client = -1 }
        close(client)
      }
    }
  }

  deinit {
    shutdown(listener, Int32(SHUT_RDWR))
    close(listener)
  }

  var transmissions: [Transmission] { state.withLock { $0.transmissions } }
  var resets: Int { state.withLock { $0.resets } }

  private func serve(_ client: Int32) {
    var decoder = SerialDecoder(.toRadio)
    var buffer = [UInt8](repeating: 0, count: 1024)
    while true {
      let count = read(client, &buffer, buffer.count)
      guard count > 0 else { return }
      let now = MonotonicTime(seconds: Date().timeIntervalSince1970)
      decoder.append(Array(buffer.prefix(count)), now: now)
      while let frame = decoder.next(now: now) {
        guard let command = try? Command(decoding: frame) else { continue }
        carryOut(command)
      }
    }
  }

  /// To whoever is connected; nobody is fine.
  func say(_ frame: [UInt8]) {
    let client = state.withLock { $0.client }
    guard client >= 0 else { return }
    let bytes = SerialFraming.wrap(frame, .fromRadio)
    _ = send(client, bytes, bytes.count, Int32(MSG_NOSIGNAL))
  }

  func reply(_ reply: Reply) { say(reply.encode()) }

  /// The message goes on the air, and arrives.
  func transmit(_ text: OutgoingText) {
    state.withLock {
      $0.transmissions.append(Transmission(text: text.text.string, time: text.time, attempt: text.attempt))
    }
  }

  func sayTaken(_ text: OutgoingText, timeout: UInt32 = 900) {
    reply(.sent(Sent(flood: true, ackOrTag: code(text), suggestedTimeout: timeout)))
  }

  func acknowledge(_ text: OutgoingText) { say(Push.sendConfirmed(ack: code(text), tripTime: 321).encode()) }

  private func code(_ text: OutgoingText) -> AckCode {
    AckCode.expected(time: text.time, attempt: text.attempt, text: text.text, sender: Self.own)
  }

  private func carryOut(_ command: Command) {
    switch command {
    case .deviceQuery:
      let details = DeviceInfo.Details(
        halfMaxContacts: 50, channelSlots: 1, pin: 0, build: "", model: "scripted", version: "v1.17.1")
      reply(.deviceInfo(DeviceInfo(protocolVersion: 13, details: details)))
    case .appStart: reply(.selfInfo(Self.info))
    case .getDeviceTime: reply(.currentTime(UInt32(Date().timeIntervalSince1970)))
    case .getContacts:
      reply(.contactsStart(total: 1))
      reply(.contact(Contact(key: Self.friend, name: "friend", lastModified: 1000)))
      reply(.endOfContacts(lastModified: 1000))
    case .getContactByKey: reply(.contact(Contact(key: Self.friend, name: "friend", lastModified: 1000)))
    case .getChannel: reply(.error(.notFound))
    case .syncNextMessage: reply(.noMoreMessages)
    case .resetPath:
      state.withLock { $0.resets += 1 }
      reply(.ok)
    case .sendText(let text): onText(self, text)
    default: reply(.ok)
    }
  }

  private static var info: SelfInfo {
    SelfInfo(
      advertType: 1, txPower: 20, maxTxPower: 22, key: own, latitude: 0, longitude: 0, multiAcks: 0, locationPolicy: 0,
      telemetryModes: TelemetryModes(raw: 0), manualAddContacts: 0,
      radio: RadioParameters(frequency: 869_618, bandwidth: 62_500, spreadingFactor: 8, codingRate: 8), name: "scripted"
    )
  }
}
