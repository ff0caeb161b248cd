// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import Dispatch
import EventLoop
import Glibc
import Hub
import Release
import ServiceManager

/// `meshpost-hub`: the reference upstream server.
@main
struct MeshpostHub: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "meshpost-hub", abstract: "Receive the journals of many gateways, and serve them.",
    version: Release.version,
    subcommands: [
      Serve.self, Consume.self, Watch.self, Doctor.self, Stats.self, Settings.self, Backup.self, PurgeOld.self,
      Gateways.self, People.self, Tokens.self,
    ])

  static func main() async {
    if CommandLine.arguments.dropFirst().first == "serve" { StartSignals.take() }
    if let broken = TypedText.brokenArgument() { exit(withError: failure("\(broken)")) }
    let typed = UnknownCommand.inOrder(Array(CommandLine.arguments.dropFirst()))
    if let remedy = UnknownCommand.remedy(typed) { exit(withError: failure(remedy, 64)) }  // EX_USAGE
    do {
      var command = try parseAsRoot(typed)
      if var asynchronous = command as? any AsyncParsableCommand {
        try await asynchronous.run()
      } else {
        try command.run()
      }
    } catch {
      let (code, message) = (exitCode(for: error), fullMessage(for: error))
      guard code.isSuccess, !message.isEmpty else { exit(withError: error) }
      Console.page(message)
    }
  }
}

struct Serve: AsyncParsableCommand {
  static let configuration = CommandConfiguration(abstract: "Serve the HTTP API until SIGTERM.")

  @Option(help: "The configuration file.") var config = "/etc/meshpost-hub/hub.toml"

  /// Of two, twelve threads take as much of the processor for an event as of twelve, and hold a third less memory (docs/endurance.md).
  private static let arenas: Int32 = 2

  func run() async throws {
    SpareMemory.limitArenas(to: Self.arenas)
    StartSignals.take()
    let stops = StartSignals.watchStops()
    defer { for source in stops { source.cancel() } }
    let notifier = ServiceNotifier()
    defer { notifier.end() }
    guard let (server, configuration, lock) = try await start(notifier) else { return }
    defer { withExtendedLifetime(lock) {} }
    let reloading = reloadOnHangUp(server, configuration)
    defer { reloading.cancel() }
    do {
      try await server.run { port in
        StartSignals.repeatStop()
        notifier.serves(server, port: port)
        HubLog.write(.notice, "listening on \(configuration.host) port \(port)")
      }
    } catch let error as HubDatabaseError {
      throw failure("\(configuration.location): \(error)", 74)  // EX_IOERR
    } catch let error where StartSignals.hasEndedStart {
      // The server library reports an end before it listens as an error.
      HubLog.write(.debug, "ended as it began: \(error)")
    } catch {
      throw failure("\(error)", 69)  // EX_UNAVAILABLE
    }
  }

  /// Makes the server; while the disk has no room for that, or another program has locked the database, it waits. `nil`: the hub was stopped meanwhile.
  private func start(_ notifier: ServiceNotifier) async throws -> (HubServer, HubConfiguration, ServingLock?)? {
    while !StartSignals.isStopped {
      // After a wait it is read again: a reload meanwhile counts.
      let configuration: HubConfiguration
      do {
        configuration = try HubConfiguration(file: config)
      } catch {
        throw failure("\(error)", 78)  // EX_CONFIG
      }
      HubLog.level = configuration.logLevel
      let wait: WaitingStart
      do {
        let lock = try await ServingLock.take(configuration.location)
        return (try HubServer(configuration), configuration, lock)
      } catch let error as HubConfiguration.Failure {
        throw failure("\(config): \(error)", 78)  // EX_CONFIG
      } catch let taken as ServingLock.Taken {
        throw failure("\(configuration.location): \(taken)", 69)  // EX_UNAVAILABLE
      } catch {
        guard let waiting = WaitingStart(configuration, after: error) else {
          throw failure("\(configuration.location): \(error)", 74)  // EX_IOERR
        }
        wait = waiting
      }
      do {
        let canStart = try await wait.run { reason in
          StartSignals.repeatStop()
          notifier.waits(reason)
        }
        StartSignals.nobodyReceives()
        guard canStart else { return nil }
      } catch let error as HubDatabaseError {
        throw failure("\(configuration.location): \(error)", 74)  // EX_IOERR
      } catch let error where StartSignals.isStopped {
        // As in `run`.
        HubLog.write(.debug, "ended as it began: \(error)")
        return nil
      } catch {
        throw failure("\(error)", 69)  // EX_UNAVAILABLE
      }
    }
    return nil
  }

  /// Reads tokens and the log's level again on SIGHUP, and logs which other changes need a restart.
  private func reloadOnHangUp(_ server: HubServer, _ started: HubConfiguration) -> any DispatchSourceSignal {
    let source = DispatchSource.makeSignalSource(signal: SIGHUP, queue: .global())
    source.setEventHandler { [config] in
      do {
        let fresh = try HubConfiguration(file: config)
        HubLog.level = fresh.logLevel
        server.reload(fresh)
        let waiting = started.waiting(in: fresh)
        guard !waiting.isEmpty else { return }
        let names = waiting.joined(separator: ", ")
        HubLog.write(.warning, "not reloaded: \(names): what the file says of that counts from the next start on")
      } catch {
        HubLog.write(.error, "tokens not reloaded: \(error)")
      }
    }
    source.setRegistrationHandler { StartSignals.repeatHangUp() }
    source.resume()
    return source
  }
}

/// Options and functions of commands on a hub's database, which may run while the hub serves.
struct HubOptions: ParsableArguments {
  @Option(help: "The configuration file.") var config = "/etc/meshpost-hub/hub.toml"

  func configuration() throws -> HubConfiguration {
    do {
      return try HubConfiguration(file: config, for: .commands)
    } catch {
      throw failure("\(error)", 78)  // EX_CONFIG
    }
  }

  /// Runs `work` on the hub's database. Its errors end the program.
  func store<Value>(
    _ configuration: HubConfiguration, writes: Bool, _ work: (HubStore) async throws -> Value
  ) async throws -> Value {
    do {
      return try await work(try HubStore.existing(configuration, writes: writes))
    } catch let code as ExitCode {
      throw code
    } catch {
      throw failure("\(configuration.location): \(error)", 74)  // EX_IOERR
    }
  }
}

/// Notifies the service manager: readiness, and watchdog pings while its loops and links respond.
final class ServiceNotifier: Sendable {
  private enum State: Sendable {
    /// The hub is alive, and waits for this reason.
    case waits(String)
    case serves(HubServer, port: Int)
  }

  private let states: AsyncStream<State>.Continuation
  private let task: Task<Void, Never>

  init() {
    let (stream, states) = AsyncStream<State>.makeStream(bufferingPolicy: .bufferingNewest(1))
    self.states = states
    // Only the task below uses it.
    nonisolated(unsafe) let manager = ServiceManager.ofThisProcess()
    task = Task {
      guard let manager else { return }
      for await state in stream {
        switch state {
        case .waits(let reason):
          // Ready, too: systemd would end a start that takes long.
          manager.ready(reason)
          manager.lives()
        case .serves(let server, let port):
          manager.ready("listening on port \(port)")
          guard let watchdog = manager.watchdog else { return }
          while !Task.isCancelled {
            await server.checkLoops()
            manager.lives()
            // `try?`: `end` cancels it.
            try? await Task.sleep(for: watchdog / 3)
          }
        }
      }
    }
  }

  func waits(_ reason: String) { states.yield(.waits(reason)) }
  func serves(_ server: HubServer, port: Int) { states.yield(.serves(server, port: port)) }

  func end() {
    states.finish()
    task.cancel()
  }
}
