// SPDX-License-Identifier: MIT

import Glibc
import JSON
import Messaging
import Store
import UntrustedText

/// Files of upstreams that were added at run time: tokens, passwords, certificates and keys, readable by the daemon only.
///
/// They came with requests, or root has put them here. Any other file is refused: otherwise operators could make the
/// daemon send files that they must not read to a server of their choice.
struct UpstreamSecrets {
  let location: String

  /// The field of the request with the contents of the files, by the key that names each file.
  static let field = "files"
  private static let keys = ["token_file", "password_file", "secret_file", "ca_file", "cert_file", "key_file"]
  private static let maxBytes = 64 * 1024

  /// Stores the files in the request. Returns its fields with their locations, all in this folder.
  func keep(_ fields: JSONValue, for name: String) throws(Refusal) -> JSONValue {
    // Check first: opening alone can have an effect, for example on a device.
    for (key, value) in fields.fields ?? [] where key.utf8.reversed().starts(with: "_file".utf8.reversed()) {
      try check(value.string ?? "", named: key)
    }
    guard let sent = fields[Self.field] else { return fields }
    guard let contents = sent.fields else { throw .invalid("\"\(Self.field)\" must be an object of strings by key") }
    var all = (fields.fields ?? []).filter { $0.0 != Self.field }
    for (key, content) in contents {
      guard Self.keys.contains(key), let text = content.string else {
        throw .invalid("\"\(Self.field)\" allows these keys: \(Self.keys.joined(separator: ", "))")
      }
      guard (1...Self.maxBytes).contains(text.utf8.count) else {
        throw .invalid("\(key): a file must have 1 to \(Self.maxBytes) bytes")
      }
      guard !all.contains(where: { $0.0 == key }) else {
        throw .invalid("\(key) is given both as a location and as a content")
      }
      let file = place(key, of: name)
      let parent = String(location[..<(location.lastIndex(of: "/") ?? location.startIndex)])
      try Refusal.translating { () throws(StoreError) in
        try WholeFile.write(text, to: file, making: [parent, location])
      }
      Store.syncFolder(of: location)
      all.append((key, .string(file)))
    }
    return .object(all)
  }

  /// Refuses a file outside this folder, also through a symbolic link.
  private func check(_ file: String, named key: String) throws(Refusal) {
    let refusal = Refusal.invalid(
      "\(key): \(file) is not in \(location): send its content (`--token-file`, `--token-stdin` and `--file "
        + "\(key)=FILE` read a local file), let root put it there, or add this upstream to the configuration file")
    // A name without a slash is a credential of the service.
    guard file.utf8.first == UInt8(ascii: "/") else { throw refusal }
    guard let real = Self.real(file) else {
      // Only for files in this folder: do not reveal whether other files exist.
      guard file.utf8.starts(with: "\(location)/".utf8), !file.mentions("..") else { throw refusal }
      throw .invalid("\(key): \(file): \(String(cString: strerror(errno)))")
    }
    guard let folder = Self.real(location), real.utf8.starts(with: "\(folder)/".utf8) else { throw refusal }
  }

  func remove(of name: String) {
    // Missing files are not an error.
    for key in Self.keys { unlink(place(key, of: name)) }
  }

  private func place(_ key: String, of name: String) -> String { "\(location)/\(name).\(key)" }

  private static func real(_ location: String) -> String? {
    guard let found = realpath(location, nil) else { return nil }
    defer { free(found) }
    return String(cString: found)
  }
}
