// SPDX-License-Identifier: MIT

import ArgumentParser
import Dispatch
import EventLoop
import Glibc
import HTTP
import Hub
import MQTT
import ServiceManager

/// Fills a hub's database from an MQTT broker.
struct Consume: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Store what gateways publish to an MQTT broker, until SIGTERM.")

  @Option(help: "The configuration file, with a table [consume].") var config = "/etc/meshpost-hub/hub.toml"

  func run() async throws {
    let configuration: HubConfiguration
    let settings: ConsumeSettings
    do {
      configuration = try HubConfiguration(file: config, for: .consuming)
      guard let consume = configuration.consume else {
        throw HubConfiguration.Failure(description: "\(config): a table [consume] is required")
      }
      settings = consume
    } catch {
      throw failure("\(error)", 78)  // EX_CONFIG
    }
    let isSecret = settings.user != nil || settings.passwordFile != nil
    if isSecret, settings.brokers.contains(where: { !$0.tls && !HTTPEndpoint.isThisMachine($0.host) }) {
      HubLog.write(.warning, "consume: the password is sent over the network unencrypted: use mqtts://")
    }
    // Only this task uses it, and then the loop.
    nonisolated(unsafe) let manager = ServiceManager.ofThisProcess()
    let consumption = try await consumption(configuration, settings) {
      // Ready, too: systemd would end a start that takes long.
      manager?.ready($0)
      manager?.lives()
    }
    if settings.topics.contains(where: { !$0.namesGateways }) {
      HubLog.write(
        .warning, "a topic without {gateway}: whoever may publish there may publish in the name of every gateway")
    }
    let stop = Wakeup<Int32>()
    let sources = [SIGTERM, SIGINT].map { Self.source($0, stop) }
    // On its own thread: the loop would block one of the few threads of all tasks.
    let end = await withCheckedContinuation { ended in
      DetachedThread.run {
        ended.resume(returning: Self.consume(settings, consumption, stop, manager))
      }
    }
    for source in sources { source.cancel() }
    if let end {
      throw failure("\(configuration.location): \(end)", 74)  // EX_IOERR
    }
  }

  /// Opens the database; while its disk has no room for that, or another program has locked it, it waits: the broker keeps what is
  /// published. `waits`: called before each pause.
  private func consumption(
    _ configuration: HubConfiguration, _ settings: ConsumeSettings, waits: (String) -> Void
  ) async throws -> PublicationIngest {
    var isTold = false
    while true {
      do {
        return try PublicationIngest(configuration, settings)
      } catch let mistake as HubConfiguration.Failure {
        throw failure("\(config): \(mistake)", 78)  // EX_CONFIG
      } catch let error as HubDatabaseError where error.passesByItself {
        if !isTold { HubLog.write(.error, "nothing is stored yet, waiting for \(error.wanted): \(error)") }
        isTold = true
        waits("waiting for \(error.wanted)")
      } catch {
        throw failure("\(configuration.location): \(error)", 74)  // EX_IOERR
      }
      try await Task.sleep(for: Self.pause)
    }
  }

  /// Between two attempts to open the database.
  private static let pause: Duration = .seconds(2)

  private static func source(_ number: Int32, _ stop: Wakeup<Int32>) -> any DispatchSourceSignal {
    signal(number, SIG_IGN)
    let source = DispatchSource.makeSignalSource(signal: number, queue: .global())
    source.setEventHandler { stop.send(number) }
    source.resume()
    return source
  }

  /// Returns `nil` after SIGTERM or SIGINT, and otherwise the reason why it cannot continue.
  private static func consume(
    _ settings: ConsumeSettings, _ consumption: PublicationIngest, _ stop: Wakeup<Int32>, _ manager: ServiceManager?
  ) -> String? {
    signal(SIGPIPE, SIG_IGN)
    let loop = EventLoop()
    let consumer = BrokerConsumer(settings, consumption, on: loop) { manager?.status($0) }
    stop.attach(to: loop) { _ in
      manager?.stopping()
      consumer.close()
      loop.stop()
    }
    manager?.ready("connecting to \(settings.brokers[0].shown)")
    if let manager, let watchdog = manager.watchdog { live(manager, every: watchdog / 3, on: loop) }
    let consuming = loop.begin {
      await consumer.run()
      guard consumer.end != nil else { return }
      consumer.close()
      loop.stop()
    }
    loop.run()
    withExtendedLifetime(consuming) {}
    return consumer.end
  }

  /// Pings the watchdog while the loop turns: an absent broker or database is no reason for a restart.
  private static func live(_ manager: ServiceManager, every pause: Duration, on loop: EventLoop) {
    manager.lives()
    loop.schedule(after: pause) { live(manager, every: pause, on: loop) }
  }
}

extension BrokerAddress {
  /// The address without anything secret.
  var shown: String { "\(host) port \(port)" }
}
