// SPDX-License-Identifier: MIT

import Companion
import RadioSession
import Relay
import Sync

/// The radio, as servers upstream are told of it, and as a signer. One signature at a time: the radio collects what it is to
/// sign in one buffer.
final class RadioSigner: RadioAccess {
  /// Bytes of what is signed that go into one frame; customary, and fits all versions.
  private static let piece = 120
  private static let maxWaiting = 8

  private let connection: RadioConnection
  private var waiting: [(message: [UInt8], done: ([UInt8]?) -> Void)] = []
  private var isSigning = false

  init(_ connection: RadioConnection) { self.connection = connection }

  var facts: RadioFacts? {
    connection.identity.map { identity in
      let info = identity.info
      return RadioFacts(
        key: info.key.hex, name: info.name.string, model: identity.device?.details?.model.string ?? "unknown",
        version: identity.device?.details?.version.string ?? "unknown", frequency: info.radio.frequency,
        bandwidth: info.radio.bandwidth, spreadingFactor: info.radio.spreadingFactor,
        codingRate: info.radio.codingRate)
    }
  }

  // MARK: Signing

  func sign(_ message: [UInt8], _ done: @escaping ([UInt8]?) -> Void) {
    guard waiting.count < Self.maxWaiting else { return done(nil) }
    waiting.append((message, done))
    if !isSigning { begin() }
  }

  private func begin() {
    guard let (message, done) = waiting.first else { return }
    waiting.removeFirst()
    isSigning = true
    let ended: ([UInt8]?) -> Void = { [weak self] signature in
      self?.isSigning = false
      done(signature)
      self?.begin()
    }
    ask(.signStart, ended) { [weak self] reply in
      guard case .signStart(let limit) = reply, message.count <= Int(limit) else { return ended(nil) }
      self?.hand(message[...], ended)
    }
  }

  private func hand(_ rest: ArraySlice<UInt8>, _ ended: @escaping ([UInt8]?) -> Void) {
    guard !rest.isEmpty else {
      return ask(.signFinish, ended) { reply in
        if case .signature(let bytes) = reply { ended(bytes) } else { ended(nil) }
      }
    }
    ask(.signData(Array(rest.prefix(Self.piece))), ended) { [weak self] reply in
      guard case .ok = reply else { return ended(nil) }
      self?.hand(rest.dropFirst(Self.piece), ended)
    }
  }

  private func ask(
    _ command: Command, _ failed: @escaping ([UInt8]?) -> Void, _ done: @escaping (Reply) -> Void
  ) {
    let isTaken = connection.submit(command) { outcome in
      if case .replied(let reply) = outcome { done(reply) } else { failed(nil) }
    }
    if isTaken == nil { failed(nil) }
  }

  // MARK: Counters

  func readStats(_ done: @escaping (RadioStats?) -> Void) {
    readStats(0) { [weak self] core in
      guard let self, case .core(let core)? = core else { return done(nil) }
      var stats = RadioStats(
        batteryMillivolts: core.batteryMillivolts, uptimeSeconds: core.uptime, queueLength: core.queueLength)
      self.readStats(1) { radio in
        if case .radio(let radio)? = radio {
          (stats.noiseFloor, stats.lastRSSI, stats.lastSNR) = (radio.noiseFloor, radio.lastRSSI, radio.lastSNR.decibels)
          (stats.secondsSent, stats.secondsReceived) = (radio.secondsSent, radio.secondsReceived)
        }
        done(stats)
      }
    }
  }

  private func readStats(_ kind: UInt8, _ done: @escaping (Stats?) -> Void) {
    let isTaken = connection.submit(.getStats(kind)) { outcome in
      if case .replied(.stats(let stats)) = outcome { done(stats) } else { done(nil) }
    }
    if isTaken == nil { done(nil) }
  }
}
