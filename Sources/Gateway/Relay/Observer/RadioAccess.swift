// SPDX-License-Identifier: MIT

import Companion

/// Facts about the radio for servers, and operations that only the radio can do.
public protocol RadioAccess: AnyObject {
  /// `nil` until a radio has been connected.
  var facts: RadioFacts? { get }
  /// Signs with the radio's identity (Ed25519), whose private key stays in the radio. `nil`: the radio is away, or cannot sign.
  func sign(_ message: [UInt8]) async -> [UInt8]?
  /// The radio's counters; `nil`: it is away, or has none.
  func readStats() async -> RadioStats?
}

/// What servers are told of the radio.
public struct RadioFacts: Equatable, Sendable {
  /// 64 lower-case hex digits.
  public var key: String
  public var name: String
  public var model: String
  public var version: String
  public var parameters: RadioParameters

  public init(key: String, name: String, model: String, version: String, parameters: RadioParameters) {
    self.key = key
    self.name = name
    self.model = model
    self.version = version
    self.parameters = parameters
  }
}

/// Counters run from the radio's boot. Source: docs/protocol/companion.md § 6.
public struct RadioStats: Equatable, Sendable {
  public var core: Stats.Core
  /// `nil`: the radio has none of these.
  public var radio: Stats.Radio?

  public init(core: Stats.Core, radio: Stats.Radio?) { (self.core, self.radio) = (core, radio) }
}
