// SPDX-License-Identifier: MIT

/// Keys of an `[[upstream]]` in the configuration of a test.
public enum UpstreamKeys {
  /// The line that permits a server to send, as most tests need it; empty if `extra`, what follows in the table, has its
  /// own.
  public static func rights(beside extra: String) -> String {
    let keys = extra.split(separator: "\n").map { $0.drop { $0 == " " } }.prefix { !$0.hasPrefix("[") }
    return keys.contains { $0.hasPrefix("allow ") } ? "" : "allow = [\"send\"]"
  }
}
