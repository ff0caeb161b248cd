// SPDX-License-Identifier: MIT

import ArgumentParser
import Dispatch
import Glibc
import Hub
import Release

/// `meshpost-hub`: the reference upstream server.
@main
struct MeshpostHub: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "meshpost-hub", abstract: "Receive the journals of many gateways, and serve them.",
    version: Release.version,
    subcommands: [
      Serve.self, Consume.self, Watch.self, Doctor.self, Stats.self, Backup.self, PurgeOld.self, People.self,
      Tokens.self,
    ])
}

struct Serve: AsyncParsableCommand {
  static let configuration = CommandConfiguration(abstract: "Serve the HTTP API until SIGTERM.")

  @Option(help: "The configuration file.") var config = "/etc/meshpost-hub/hub.toml"

  func run() async throws {
    let configuration: HubConfiguration
    do {
      configuration = try HubConfiguration(file: config)
    } catch {
      throw failure("\(error)", 78)  // EX_CONFIG
    }
    HubLog.level = configuration.logLevel
    let server: HubServer
    do {
      server = try HubServer(configuration)
    } catch let error as HubConfiguration.Failure {
      throw failure("\(config): \(error)", 78)  // EX_CONFIG
    } catch {
      throw failure("\(configuration.location): \(error)", 74)  // EX_IOERR
    }
    let reloading = reloadOnHangUp(server, configuration)
    let notifier = ServiceNotifier(server)
    defer {
      reloading.cancel()
      notifier.end()
    }
    do {
      try await server.run { port in
        notifier.isReady(port: port)
        HubLog.write(.notice, "listening on \(configuration.host) port \(port)")
      }
    } catch let error as HubDatabaseError {
      throw failure("\(configuration.location): \(error)", 74)  // EX_IOERR
    } catch {
      throw failure("\(error)", 69)  // EX_UNAVAILABLE
    }
  }

  /// Reads tokens and the log's level again on SIGHUP, and logs which other changes need a restart.
  private func reloadOnHangUp(_ server: HubServer, _ started: HubConfiguration) -> any DispatchSourceSignal {
    signal(SIGHUP, SIG_IGN)
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
    source.resume()
    return source
  }
}
