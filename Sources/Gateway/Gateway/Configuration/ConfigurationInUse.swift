// SPDX-License-Identifier: MIT

import EventLoop

/// The configuration that the gateway runs with, and the file that it comes from.
struct ConfigurationInUse {
  let file: String
  /// With which the gateway began. A setting that is read at the start only still has its value of here.
  private let first: GatewayConfiguration
  var current: GatewayConfiguration
  /// Settings without effect that the log names already.
  private var idle: [IdleSetting] = []

  init(_ configuration: GatewayConfiguration, of file: String) {
    (first, current, self.file) = (configuration, configuration, file)
  }

  /// The file as it stands now.
  func read() throws(GatewayConfiguration.Failure) -> GatewayConfiguration {
    try GatewayConfiguration(file: file, inPlaceOf: current)
  }

  /// Settings of `configuration` that take effect at the next start.
  func waiting(in configuration: GatewayConfiguration) -> [String] { first.waiting(in: configuration) }

  /// Keeps it for the next start, where the file may be refused.
  func keep() throws(SystemError) { try current.keep(of: file) }

  /// Takes what has no effect now. Returns what had an effect before, or was not there.
  mutating func newlyIdle(in now: [IdleSetting]) -> [IdleSetting] {
    defer { idle = now }
    return now.filter { one in !idle.contains { $0.isAbout(one) } }
  }
}
