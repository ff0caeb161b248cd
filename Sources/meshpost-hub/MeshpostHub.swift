// SPDX-License-Identifier: MIT

import ArgumentParser
import Foundation
import Hub

/// `meshpost-hub`: the reference upstream server.
@main
struct MeshpostHub: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "meshpost-hub", abstract: "Takes many gateways' journals and serves them.",
    subcommands: [Serve.self, Watch.self])
}

struct Serve: AsyncParsableCommand {
  static let configuration = CommandConfiguration(abstract: "Serve the HTTP API until SIGTERM.")

  @Option(help: "The configuration file.") var config = "/etc/meshpost/hub.toml"

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
    do {
      try await server.run { port in
        FileHandle.standardError.write(Data("notice: listening on \(configuration.host) port \(port)\n".utf8))
      }
    } catch {
      FileHandle.standardError.write(Data("error: \(error)\n".utf8))
      throw ExitCode(69)  // EX_UNAVAILABLE
    }
  }
}
