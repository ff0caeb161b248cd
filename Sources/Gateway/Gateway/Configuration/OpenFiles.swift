// SPDX-License-Identifier: MIT

import Glibc
import ServiceManager
import TOML

extension GatewayConfiguration {
  private static let secrets = ["token_file", "password_file", "secret_file", "key_file", "pin_file"]

  /// Files of the configuration that every user of this machine can change, or secrets that every user can read, each
  /// with a remedy. The gateway uses them in spite of that.
  public func openFiles(of file: String) -> [(words: String, remedy: String)] {
    // `try?`: the source was parsed before.
    let root = try? TOMLParser.parse(source)
    let named = (root?.entries ?? []).flatMap { Self.files(in: $0.value) }
    let own =
      Self.isOpen(file, to: S_IWOTH) ? [("\(file) can be changed by everybody", "`sudo chmod o-w \(file)`")] : []
    return own
      + Set(named).sorted().filter { Self.isOpen($0, to: S_IRWXO) }.map {
        ("\($0) is a secret, and open to everybody", "`sudo chmod o= \($0)`; replace it if others may have read it.")
      }
  }

  private static func files(in value: TOMLValue) -> [String] {
    switch value.kind {
    case .table(let table):
      table.entries.compactMap { entry in
        guard secrets.contains(entry.key), case .string(let name) = entry.value.kind else { return nil }
        return Credential.location(name)
      }
    case .array(let values): values.flatMap(files)
    default: []
    }
  }

  private static func isOpen(_ file: String, to mode: mode_t) -> Bool {
    var facts = stat()
    return stat(file, &facts) == 0 && facts.st_mode & S_IFMT == S_IFREG && facts.st_mode & mode != 0
  }
}
