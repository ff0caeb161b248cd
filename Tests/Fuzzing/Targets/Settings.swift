// SPDX-License-Identifier: MIT

import Documents
import JSON
import UntrustedText

@testable import Gateway
@testable import Hub

extension FuzzTarget {
  /// A configuration of a gateway, a hub or a consumer. The first byte chooses.
  static func configuration(_ bytes: [UInt8]) {
    let text = Array(bytes.dropFirst())
    switch (bytes.first ?? 0) & 3 {
    case 0, 1: gateway(text)
    case 2: hub(text, .serving)
    default: hub(text, .consuming)
    }
  }

  private static func gateway(_ text: [UInt8]) {
    do throws(GatewayConfiguration.Failure) {
      let one = try GatewayConfiguration(parsing: text, file: "f")
      must(one.source == text, "a configuration keeps its text")
      must(one.controlSocket.begins(with: "/") && one.store.location.begins(with: "/"), "places are absolute")
      for remark in one.warnings + one.lacks { must(remark.begins(with: "f: "), "a remark names its file: \(remark)") }
      let names = one.upstreams.map { Array($0.name.utf8) }
      must(Set(names).count == names.count, "an upstream's name is its own: \(one.upstreams.map(\.name))")
    } catch {
      judge(error.description, text)
    }
  }

  private static func hub(_ text: [UInt8], _ purpose: HubConfiguration.Purpose) {
    do {
      let one = try HubConfiguration(parsing: text, file: "f", for: purpose)
      must(one.waiting(in: one).isEmpty, "a configuration does not differ from itself")
      must((0...65535).contains(one.port) && one.maxBody > 0 && one.maxConnections > 0, "numbers are in their ranges")
      must(purpose == .serving ? !one.tokens.isEmpty || one.gatewayTokens != nil : one.consume != nil, "it is complete")
    } catch let failure as HubConfiguration.Failure {
      judge(failure.description, text)
    } catch {
      // TOML's own mistake: `toml` has its properties.
    }
  }

  /// Mistakes are lines, each with the file and a line of it.
  private static func judge(_ mistakes: String, _ text: [UInt8]) {
    let count = text.count { $0 == 10 } + 1
    must(!mistakes.isEmpty, "a refusal has a reason")
    for line in mistakes.utf8.split(separator: 10) {
      let words = String(decoding: line, as: UTF8.self)
      let number =
        words.begins(with: "f: line ") ? Int(words.utf8.dropFirst(8).prefix { $0 != 0x3A }.map(digit).joined()) : nil
      must(
        number.map { (1...count).contains($0) } ?? false,
        "a mistake is one line that names the file and its line: \(words)")
    }
  }

  private static func digit(_ byte: UInt8) -> String { String(decoding: [byte], as: UTF8.self) }

  /// Versions of documents, one a line: both ends choose the same, in whatever order they come.
  static func documents(_ bytes: [UInt8]) {
    var versions: [Document] = []
    for line in bytes.split(separator: 10).prefix(6) {
      // `try?`: other lines are no documents.
      guard let json = try? JSONValue(parsing: Array(line)), let text = json["key"]?.string else { continue }
      let value = json["value"] ?? .null
      if let key = DocumentKey(text) {
        must(key.text.isExactly(text), "a key reads back: \(text)")
        if key.allows(value) {
          must(
            (try? JSONValue(parsing: value.text)).map(key.allows) == true,
            "an allowed value stays allowed: \(value.text)")
        }
      }
      versions.append(
        Document(
          key: "k", value: value == .null ? nil : value.text, updatedAt: json["updated_at"]?.count ?? 0,
          byHub: json["by_hub"]?.bool ?? false))
    }
    for one in versions {
      let later = Document.edit("k", one.value, of: one, at: 0, byHub: one.byHub)
      must(later.updatedAt == .max || later.wins(over: one), "an edit wins over what it has edited: \(one)")
      for other in versions {
        let wins = (one.wins(over: other), other.wins(over: one))
        must(one == other ? wins == (false, false) : wins.0 != wins.1, "of two versions one wins: \(one) \(other)")
        for third in versions where wins.0 && other.wins(over: third) {
          must(one.wins(over: third), "the order of versions is one: \(one) \(other) \(third)")
        }
      }
    }
  }
}
