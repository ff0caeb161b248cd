// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import Hub

struct Backup: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Back up the database to a file while the hub runs.",
    discussion: """
      The copy is of one moment, and is looked through. Of a PostgreSQL database, pg_dump makes it, in its custom format. \
      An existing file is not replaced.
      """)

  @OptionGroup var beside: Beside
  @Argument(help: "The new file.") var file: String

  func run() async throws {
    let configuration = try beside.configuration()
    do {
      let bytes = try HubBackup.make(of: configuration, to: file)
      print("\(file): \(bytes) bytes, verified")
    } catch let failure as HubBackup.Failure {
      Console.error("error: \(failure)")
      throw ExitCode(failure.isPlace ? 73 : 74)  // EX_CANTCREAT, EX_IOERR
    } catch {
      Console.error("error: \(configuration.location): \(error)")
      throw ExitCode(74)  // EX_IOERR
    }
  }
}
