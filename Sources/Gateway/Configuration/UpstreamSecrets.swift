// SPDX-License-Identifier: MIT

import Glibc
import JSON
import Messaging
import Relay
import Store

/// Files of upstreams that were added while the daemon ran: tokens, passwords, certificates and keys, for the daemon alone.
///
/// They are sent along, or root has put them here. Any other file is refused: the daemon would send what its operators
/// must not read to a server of their choice.
struct UpstreamSecrets {
  let location: String

  /// Where the request has what the files are to hold: an object, by the key that names the file.
  static let field = "files"
  private static let keys = ["token_file", "password_file", "secret_file", "ca_file", "cert_file", "key_file"]
  private static let maxBytes = 64 * 1024

  /// Keeps what the request sends along. Returns its fields with the places of these files; no file that they name lies
  /// anywhere else.
  func keep(_ fields: JSONValue, for name: String) throws(Refusal) -> JSONValue {
    // Before anything is opened: to open is to do something already, as with a device.
    for (key, value) in fields.fields ?? [] where key.utf8.reversed().starts(with: "_file".utf8.reversed()) {
      try check(value.string ?? "", named: key)
    }
    guard let sent = fields[Self.field] else { return fields }
    guard let contents = sent.fields else { throw .invalid("\"\(Self.field)\" is an object: texts by key") }
    var all = (fields.fields ?? []).filter { $0.0 != Self.field }
    for (key, content) in contents {
      guard Self.keys.contains(key), let text = content.string else {
        throw .invalid("\"\(Self.field)\" has texts under these keys: \(Self.keys.joined(separator: ", "))")
      }
      guard (1...Self.maxBytes).contains(text.utf8.count) else {
        throw .invalid("\(key): a file has 1 to \(Self.maxBytes) bytes")
      }
      guard !all.contains(where: { $0.0 == key }) else { throw .invalid("\(key) is named, and sent along, too") }
      let file = place(key, of: name)
      do throws(StoreError) {
        try write(text, to: file)
      } catch {
        throw .store(error)
      }
      all.append((key, .string(file)))
    }
    return .object(all)
  }

  /// Refuses a file that lies anywhere else, also by way of a link.
  private func check(_ file: String, named key: String) throws(Refusal) {
    let refusal = Refusal.invalid(
      "\(key): \(file) is not in \(location): send its content along (`--token-file`, `--token-stdin`, `--file "
        + "\(key)=FILE` read it where you are), have root put it there, or write this upstream into the configuration")
    // By the first byte: a name without a slash is a credential of the service.
    guard file.utf8.first == UInt8(ascii: "/") else { throw refusal }
    guard let real = Self.real(file) else {
      // Said only of what lies here: what is elsewhere is nobody's business.
      guard file.utf8.starts(with: "\(location)/".utf8), !file.contains("..") else { throw refusal }
      throw .invalid("\(key): \(file): \(String(cString: strerror(errno)))")
    }
    guard let folder = Self.real(location), real.utf8.starts(with: "\(folder)/".utf8) else { throw refusal }
  }

  func remove(of name: String) {
    // Those that are not there are no trouble.
    for key in Self.keys { unlink(place(key, of: name)) }
  }

  private func place(_ key: String, of name: String) -> String { "\(location)/\(name).\(key)" }

  private static func real(_ location: String) -> String? {
    guard let found = realpath(location, nil) else { return nil }
    defer { free(found) }
    return String(cString: found)
  }

  /// For the daemon alone from the first byte on, and anew: nothing that lies there is written through.
  private func write(_ text: String, to file: String) throws(StoreError) {
    func fail(_ call: String) -> StoreError { .unavailable("\(call) \(file): \(String(cString: strerror(errno)))") }
    for folder in [String(location[..<(location.lastIndex(of: "/") ?? location.startIndex)]), location] {
      guard mkdir(folder, 0o700) == 0 || errno == EEXIST else { throw fail("mkdir for") }
    }
    guard unlink(file) == 0 || errno == ENOENT else { throw fail("unlink") }
    let descriptor = open(file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
    guard descriptor >= 0 else { throw fail("open") }
    defer { close(descriptor) }
    let bytes = Array(text.utf8)
    guard Glibc.write(descriptor, bytes, bytes.count) == bytes.count, fsync(descriptor) == 0 else {
      throw fail("write")
    }
  }
}
