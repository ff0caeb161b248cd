// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Relay
import Sync

/// The radio's facts, and signatures by it. One at a time: the radio collects the bytes in one buffer.
final class RadioSigner: RadioAccess {
  /// Bytes of the message in one frame; customary, and fits all versions.
  private static let piece = 120
  private static let maxWaiting = 8

  private let connection: RadioConnection
  private let buffer = LoopSemaphore<Int>(bound: maxWaiting)

  init(_ connection: RadioConnection) { self.connection = connection }

  var facts: RadioFacts? {
    connection.identity.map { identity in
      let info = identity.info
      return RadioFacts(
        key: info.key.hex, name: info.name.string, model: identity.device?.details?.model.string ?? "unknown",
        version: identity.device?.details?.version.string ?? "unknown", parameters: info.radio)
    }
  }

  // MARK: Signing

  /// An Ed25519 signature by the radio's identity. `nil`: the radio is disconnected or cannot sign, too many requests
  /// wait, or the task was cancelled.
  func sign(_ message: [UInt8]) async -> [UInt8]? {
    do {
      return try await buffer.with(0) { await self.signed(message) }
    } catch {
      // The caller retries when it needs the signature.
      return nil
    }
  }

  private func signed(_ message: [UInt8]) async -> [UInt8]? {
    guard case .signStart(let limit) = await ask(.signStart), message.count <= Int(limit) else { return nil }
    var rest = message[...]
    while !rest.isEmpty {
      guard case .ok = await ask(.signData(Array(rest.prefix(Self.piece)))) else { return nil }
      rest = rest.dropFirst(Self.piece)
    }
    guard case .signature(let bytes) = await ask(.signFinish) else { return nil }
    return bytes
  }

  private func ask(_ command: Command) async -> Reply? {
    guard case .replied(let reply) = await connection.ask(command, .sync) else { return nil }
    return reply
  }

  // MARK: Counters

  /// `nil`: the radio is disconnected, or has no counters.
  func readStats() async -> RadioStats? {
    guard case .stats(.core(let core)) = await ask(.getStats(0)) else { return nil }
    guard case .stats(.radio(let radio)) = await ask(.getStats(1)) else { return RadioStats(core: core, radio: nil) }
    return RadioStats(core: core, radio: radio)
  }
}
