// SPDX-License-Identifier: MIT

import Glibc

/// Secrets that a service manager passes to a service (systemd.exec(5), "Credentials"): files in `$CREDENTIALS_DIRECTORY`.
public enum Credential {
  /// The prefix of the files that `LoadCredential=meshpost:FOLDER` loads.
  private static let prefix = "meshpost_"

  /// The location of a secret in the configuration: a name without a slash is a credential or, without a credentials directory, a
  /// file in `folder`. Anything else is a location already.
  public static func location(_ name: String, or folder: String = "/etc/meshpost/credentials") -> String {
    guard !name.isEmpty, !name.utf8.contains(UInt8(ascii: "/")) else { return name }
    if let credentials = getenv("CREDENTIALS_DIRECTORY").map({ String(cString: $0) }) {
      for candidate in ["\(credentials)/\(name)", "\(credentials)/\(prefix)\(name)"]
      where access(candidate, R_OK) == 0 { return candidate }
    }
    return "\(folder)/\(name)"
  }
}
