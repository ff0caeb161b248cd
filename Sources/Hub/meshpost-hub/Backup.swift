// SPDX-License-Identifier: MIT

import ArgumentParser
import Hub

struct Backup: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Back up the database to a file while the hub runs.",
    discussion: """
      The copy is of one moment, and is looked through. Of a PostgreSQL database, pg_dump makes it, in its custom format. \
      An existing file is not replaced.
      """)

  @OptionGroup var hub: HubOptions
  @Option(help: "Of PostgreSQL: seconds for which nothing more may come from pg_dump, before it is ended.")
  var patience = 600
  @Argument(help: "The new file.") var file: String

  func validate() throws {
    guard (1...86_400).contains(patience) else { throw ValidationError("--patience: 1 to 86400 s") }
    guard !file.isEmpty else { throw ValidationError("the name of the new file is empty") }
  }

  func run() async throws {
    let configuration = try hub.configuration()
    do {
      let bytes = try HubBackup.make(of: configuration, to: file, patience: .seconds(patience))
      print("\(file): \(bytes) bytes, verified")
    } catch let trouble as HubBackup.Failure {
      throw failure("\(trouble)", trouble.isPlace ? 73 : 74)  // EX_CANTCREAT, EX_IOERR
    } catch {
      throw failure("\(configuration.location): \(error)", 74)  // EX_IOERR
    }
  }
}
