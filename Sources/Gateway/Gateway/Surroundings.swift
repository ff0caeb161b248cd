// SPDX-License-Identifier: MIT

import EventLoop
import Relay
import ServiceManager
import Transport

/// The gateway's connections outside of its process, except its files and its control socket: the radio, the servers,
/// the network, the log. Tests replace them, and run the whole gateway in their own process.
public struct Surroundings {
  public var link: (GatewayConfiguration, ServiceManager?, EventLoop, Log) -> any Link = {
    configuration, manager, loop, log in
    Links.link(
      to: configuration.link, bluetooth: configuration.bluetooth, key: configuration.radioKey, manager: manager,
      on: loop, log: log)
  }
  public var carriers = Carriers.toServers
  /// Reports changes of the network while the object exists.
  public var network: (EventLoop, _ changed: @escaping () -> Void) -> AnyObject = { NetworkWatch(on: $0, $1) }
  /// Receives lines of the log; `nil`: they go to standard error, or the journal.
  public var log: ((Log.Level, String) -> Void)?

  public init() {}
}
