// SPDX-License-Identifier: MIT

import EventLoop
import Relay
import ServiceManager
import Transport

/// What a gateway has to do with outside of its process, beside its files and its control socket: the radio, the servers, the network, the log.
/// A test has others, and the whole gateway in its own process.
public struct Surroundings {
  public var link: (GatewayConfiguration, ServiceManager?, EventLoop, Log) -> any Link = {
    configuration, manager, loop, log in
    Links.link(
      to: configuration.link, bluetooth: configuration.bluetooth, key: configuration.radioKey, manager: manager,
      on: loop, log: log)
  }
  public var carriers = Carriers.toServers
  /// What tells of changes of the network, for as long as it is kept.
  public var network: (EventLoop, _ changed: @escaping () -> Void) -> AnyObject = { NetworkWatch(on: $0, $1) }
  /// Where lines of the log go; `nil`: to standard error, or the journal.
  public var log: ((Log.Level, String) -> Void)?

  public init() {}
}
