// SPDX-License-Identifier: MIT

import EventLoop

/// The configuration in use, and its file.
struct ConfigurationInUse {
  let file: String
  /// The configuration at the start: settings that are read only then still have their values of here.
  private let first: GatewayConfiguration
  var current: GatewayConfiguration
  /// Ineffective settings that the log has reported.
  private var idle: [IdleSetting] = []

  init(_ configuration: GatewayConfiguration, of file: String) {
    (first, current, self.file) = (configuration, configuration, file)
  }

  /// Reads the file as it is now.
  func read() throws(GatewayConfiguration.Failure) -> GatewayConfiguration {
    // Another location of the store waits for the next start.
    try GatewayConfiguration(file: file, inPlaceOf: current, openStore: first.store.location)
  }

  /// The settings in `configuration` that take effect at the next start.
  func waiting(in configuration: GatewayConfiguration) -> [String] { first.waiting(in: configuration) }

  /// Stores the configuration for the next start, in case the file is refused then.
  func keep() throws(SystemError) { try current.keep(of: file) }

  /// Remembers the ineffective settings. Returns those that are new.
  mutating func newlyIdle(in now: [IdleSetting]) -> [IdleSetting] {
    defer { idle = now }
    return now.filter { one in !idle.contains { $0.isAbout(one) } }
  }
}
