// SPDX-License-Identifier: MIT

import ArgumentParser
import Foundation
import Hub
import Release

/// `meshpost-hub`: the reference upstream server.
@main
struct MeshpostHub: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "meshpost-hub", abstract: "Takes many gateways' journals and serves them.", version: Release.version,
    subcommands: [Serve.self, Watch.self])
}

struct Serve: AsyncParsableCommand {
  static let configuration = CommandConfiguration(abstract: "Serve the HTTP API until SIGTERM.")

  @Option(help: "The configuration file.") var config = "/etc/meshpost-hub/hub.toml"

  func run() async throws {
    let configuration: HubConfiguration
    do {
      configuration = try HubConfiguration(file: config)
    } catch {
      FileHandle.standardError.write(Data("error: \(error)\n".utf8))
      throw ExitCode(78)  // EX_CONFIG
    }
    let server: HubServer
    do {
      server = try HubServer(configuration)
    } catch {
      FileHandle.standardError.write(Data("error: \(configuration.location): \(error)\n".utf8))
      throw ExitCode(74)  // EX_IOERR
    }
    let reloading = reloadOnHangUp(server)
    let duties = HubDuties(server)
    defer {
      reloading.cancel()
      duties.end()
    }
    do {
      try await server.run { port in
        duties.isReady(port: port)
        FileHandle.standardError.write(Data("notice: listening on \(configuration.host) port \(port)\n".utf8))
      }
    } catch {
      FileHandle.standardError.write(Data("error: \(error)\n".utf8))
      throw ExitCode(69)  // EX_UNAVAILABLE
    }
  }

  /// SIGHUP: tokens are read anew, so that they can be exchanged without a pause.
  private func reloadOnHangUp(_ server: HubServer) -> any DispatchSourceSignal {
    signal(SIGHUP, SIG_IGN)
    let source = DispatchSource.makeSignalSource(signal: SIGHUP, queue: .global())
    source.setEventHandler { [config] in
      do {
        server.access.replace(with: try HubConfiguration(file: config).tokens)
        FileHandle.standardError.write(Data("notice: tokens are read anew\n".utf8))
      } catch {
        FileHandle.standardError.write(Data("error: tokens stay as they were: \(error)\n".utf8))
      }
    }
    source.resume()
    return source
  }
}
