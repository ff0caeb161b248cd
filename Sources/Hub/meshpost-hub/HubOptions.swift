// SPDX-License-Identifier: MIT

import ArgumentParser
import Hub

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
