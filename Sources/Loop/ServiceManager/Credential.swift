// SPDX-License-Identifier: MIT

import Glibc

/// Secrets that a service manager passes to a service (systemd.exec(5), "Credentials"): files in `$CREDENTIALS_DIRECTORY`.
public enum Credential {
  private static let variable = "CREDENTIALS_DIRECTORY"

  /// The prefix of the files that `LoadCredential=meshpost:FOLDER` loads.
  private static let prefix = "meshpost_"

  /// The location of a secret in the configuration: a name without a slash is a credential or, without a credentials directory, a
  /// file in `folder`. Anything else is a location already.
  public static func location(_ name: String, or folder: String = "/etc/meshpost/credentials") -> String {
    guard !name.isEmpty, !name.utf8.contains(UInt8(ascii: "/")) else { return name }
    if let credentials = getenv(variable).map({ String(cString: $0) }) {
      for candidate in ["\(credentials)/\(name)", "\(credentials)/\(prefix)\(name)"]
      where access(candidate, R_OK) == 0 { return candidate }
    }
    return "\(folder)/\(name)"
  }

  /// Without a service manager, credentials are also files in the folder `credentials` beside the program's configuration file. For the start of a
  /// program, before it has other threads.
  public static func lookBeside(_ configuration: String) {
    guard getenv(variable) == nil else { return }
    let slash = configuration.utf8.lastIndex(of: UInt8(ascii: "/"))
    let folder = slash.map { String(decoding: configuration.utf8[...$0], as: UTF8.self) } ?? "."
    guard let end = realpath(folder, nil) else { return }
    defer { free(end) }
    setenv(variable, String(cString: end) + "/credentials", 0)
  }
}
