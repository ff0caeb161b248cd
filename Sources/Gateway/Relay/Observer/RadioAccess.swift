// SPDX-License-Identifier: MIT

/// Facts about the radio for servers, and operations that only the radio can do.
public protocol RadioAccess: AnyObject {
  /// `nil` until a radio has been connected.
  var facts: RadioFacts? { get }
  /// Signs with the radio's identity (Ed25519), whose private key stays in the radio. `nil`: the radio is away, or cannot sign.
  func sign(_ message: [UInt8]) async -> [UInt8]?
  /// The radio's counters; `nil`: it is away, or has none.
  func readStats() async -> RadioStats?
}

public struct RadioFacts: Equatable, Sendable {
  /// 64 lower-case hex digits.
  public var key: String
  public var name: String
  public var model: String
  public var version: String
  /// kHz, Hz.
  public var frequency: UInt32
  public var bandwidth: UInt32
  public var spreadingFactor: UInt8
  public var codingRate: UInt8

  public init(
    key: String, name: String, model: String, version: String, frequency: UInt32, bandwidth: UInt32,
    spreadingFactor: UInt8, codingRate: UInt8
  ) {
    self.key = key
    self.name = name
    self.model = model
    self.version = version
    self.frequency = frequency
    self.bandwidth = bandwidth
    self.spreadingFactor = spreadingFactor
    self.codingRate = codingRate
  }
}

/// Counters run from the radio's boot. Source: docs/protocol/companion.md § 6.
public struct RadioStats: Equatable, Sendable {
  public var batteryMillivolts: UInt16
  public var uptimeSeconds: UInt32
  public var queueLength: UInt8
  /// dBm.
  public var noiseFloor: Int16?
  public var lastRSSI: Int8?
  /// dB.
  public var lastSNR: Double?
  public var secondsSent: UInt32?
  public var secondsReceived: UInt32?

  public init(
    batteryMillivolts: UInt16, uptimeSeconds: UInt32, queueLength: UInt8, noiseFloor: Int16? = nil,
    lastRSSI: Int8? = nil, lastSNR: Double? = nil, secondsSent: UInt32? = nil, secondsReceived: UInt32? = nil
  ) {
    self.batteryMillivolts = batteryMillivolts
    self.uptimeSeconds = uptimeSeconds
    self.queueLength = queueLength
    self.noiseFloor = noiseFloor
    self.lastRSSI = lastRSSI
    self.lastSNR = lastSNR
    self.secondsSent = secondsSent
    self.secondsReceived = secondsReceived
  }
}
