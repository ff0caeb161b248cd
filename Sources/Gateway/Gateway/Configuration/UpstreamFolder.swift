// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import JSON
import Messaging
import OwnFiles
import Relay
import Store
import TOML
import UntrustedText

/// Upstreams that were added at run time: each is a file beside the database, with the keys of an `[[upstream]]`.
///
/// Adding an upstream must not give access to files that only the daemon can read: the files of such an upstream, such as its
/// token, must be in a folder within this one.
struct UpstreamFolder {
  let location: String

  init(store: String) { location = OwnSuffix.upstreams.of(store) }

  /// Mistakes, one a line.
  struct Failure: Error {
    let description: String
  }

  private static let maxBytes = 64 * 1024

  // MARK: Reading

  /// Reads all of them. An invalid one is included with the reason: it keeps its place in the journal.
  func read() -> (upstreams: [UpstreamSettings], lacks: [String], warnings: [String]) {
    var upstreams: [UpstreamSettings] = []
    var (lacks, warnings): ([String], [String]) = ([], [])
    for name in names() {
      let file = file(of: name)
      do throws(Failure) {
        guard let bytes = Files.read(file, most: Self.maxBytes) else {
          throw Failure(description: "\(file): cannot be read")
        }
        let parsed = try Self.parse(bytes) { "\(file): \($0)" }
        upstreams.append(parsed.upstream)
        lacks += parsed.lacks
        warnings += parsed.warnings
      } catch {
        let words = error.description
        lacks += words.split(separator: "\n").map(String.init)
        upstreams.append(UpstreamSettings(.unreadable(reason: words), name: name, url: ""))
      }
    }
    return (upstreams, lacks, warnings)
  }

  private func names() -> [String] {
    Files.names(in: location).filter { $0.hasSuffix(".toml") }.map { String($0.dropLast(5)) }
  }

  /// An upstream, problems that prevent it from working, and warnings.
  typealias Parsed = (upstream: UpstreamSettings, lacks: [String], warnings: [String])

  /// `words`: what to say of a mistake.
  private static func parse(_ bytes: [UInt8], _ words: (TOMLError) -> String) throws(Failure) -> Parsed {
    do {
      var table = TOMLReader(try TOMLParser.parse(bytes))
      let upstream = UpstreamConfiguration.read(&table)
      if let upstream { UpstreamConfiguration.checkTopics(upstream, beside: [], gateway: nil, &table) }
      table.finish()
      guard table.errors.isEmpty, let upstream else {
        throw Failure(description: table.errors.map(words).joined(separator: "\n"))
      }
      return (upstream, table.lacks.map(words), table.warnings.map(words))
    } catch let failure as Failure {
      throw failure
    } catch let error as TOMLError {
      throw Failure(description: words(error))
    } catch {
      throw Failure(description: "\(error)")
    }
  }

  // MARK: Changing

  /// Validates the fields of an upstream, then stores them.
  func add(_ fields: JSONValue) throws(Refusal) -> Parsed {
    let name = fields["name"]?.string ?? ""
    guard Self.isName(name) else { throw .invalid("a name must have 1 to 64 letters, digits, `.`, `_` and `-`") }
    do throws(Refusal) {
      let fields = try files.keep(fields, for: name)
      let text = try Self.toml(fields)
      guard text.utf8.count < Self.maxBytes else {
        throw .invalid("an upstream may have at most \(Self.maxBytes) bytes")
      }
      let added: Parsed
      do throws(Failure) {
        // Who adds it has no file: its key says which option or field is wrong.
        added = try Self.parse(Array(text.utf8)) { Visible.line($0.reason) }
      } catch {
        throw .invalid(error.description)
      }
      guard added.lacks.isEmpty else { throw .invalid(added.lacks.joined(separator: "\n")) }
      try Refusal.translating { () throws(StoreError) in
        try WholeFile.write(text, to: file(of: name), making: [location])
      }
      return added
    } catch {
      files.remove(of: name)
      throw error
    }
  }

  func has(_ name: String) -> Bool { Self.isName(name) && access(file(of: name), F_OK) == 0 }

  private func file(of name: String) -> String { "\(location)/\(name).toml" }

  /// Returns false if there is no such upstream, or its file cannot be deleted.
  func remove(_ name: String) -> Bool {
    let file = file(of: name)
    guard Self.isName(name), unlink(file) == 0 else { return false }
    files.remove(of: name)
    Store.syncFolder(of: file)
    return true
  }

  private var files: UpstreamSecrets { UpstreamSecrets(location: location + "/files") }

  /// The letters of a gateway's id, because both are parts of paths.
  private static func isName(_ name: String) -> Bool { RelayMark.isGateway(name) && !name.hasPrefix(".") }

  // MARK: TOML

  private static func toml(_ fields: JSONValue) throws(Refusal) -> String {
    var lines: [String] = []
    for (key, value) in fields.fields ?? [] where value != .null {
      guard !key.isEmpty, key.utf8.allSatisfy({ $0 == 0x5F || (0x61...0x7A).contains($0) }) else {
        throw .invalid("\"\(key)\" is not a key")
      }
      lines.append("\(key) = \(try toml(value, key))\n")
    }
    return lines.joined()
  }

  private static func toml(_ value: JSONValue, _ key: String) throws(Refusal) -> String {
    switch value {
    case .string, .bool, .integer: return plain(value)
    case .array(let items):
      guard items.allSatisfy({ $0.string != nil }) else { throw .invalid("\"\(key)\" must be a list of strings") }
      return "[" + items.map(plain).joined(separator: ", ") + "]"
    default: throw .invalid("\"\(key)\" must be a string, a whole number, true, false or a list of strings")
    }
  }

  /// TOML reads the JSON form of such values equally.
  private static func plain(_ value: JSONValue) -> String {
    var writer = JSONWriter()
    writer.value(value)
    return writer.string
  }
}
