// SPDX-License-Identifier: MIT

import EventLoop
import RadioSharing
import TOML

/// `[[proxy]]`: addresses at which other programs share the radio.
enum ProxyConfiguration {
  /// `metricsPort`: on this machine; 0: there are no metrics.
  static func read(_ root: inout TOMLReader, metricsPort: UInt16) -> [SharingSettings] {
    var all: [SharingSettings] = []
    for var table in root.tables("proxy") {
      if let settings = read(&table, others: all) {
        checkDoor(settings.address, [("metrics_port", .loopback(metricsPort))], &table)
        all.append(settings)
      }
      table.finish()
      root.note(table.errors)
    }
    return all
  }

  /// Of two listeners at one door, the second would not start.
  static func checkDoor(
    _ address: ListenAddress, _ others: [(what: String, address: ListenAddress)], _ table: inout TOMLReader
  ) {
    for other in others where address.meets(other.address) {
      table.note("listen", "port \(address.port) is this gateway's own already: \(other.what)")
    }
  }

  private static func read(_ table: inout TOMLReader, others: [SharingSettings]) -> SharingSettings? {
    let listen = table.string("listen") ?? "127.0.0.1:5000"
    let name = table.string("name") ?? listen
    let ranges = ranges(&table)
    let allowed = dangers(&table)
    let most = table.integer("max_clients", in: 1...16, default: 8)
    let history = table.integer("history", in: 0...100_000, default: 0)
    guard let address = ListenAddress(listen) else {
      table.note(
        "listen", "\"\(listen)\" is not allowed: expected a numeric address and a port, such as \"127.0.0.1:5000\"")
      return nil
    }
    if !address.address.isLoopback, ranges.isEmpty {
      table.note(
        "listen",
        "\(listen) is reachable from other machines, and the protocol has no password: list allowed clients in "
          + "allow_from, such as [\"192.168.1.0/24\"]")
    }
    if others.contains(where: { $0.address.meets(address) }) { table.note("listen", "\(listen) is used twice") }
    if others.contains(where: { $0.name == name }) { table.note("name", "\"\(name)\" is used twice") }
    if !(1...64).contains(name.utf8.count) { table.note("name", "a name must have 1 to 64 bytes") }
    return SharingSettings(
      name: name, address: address, allowFrom: ranges, allows: allowed, maxClients: Int(most), history: history)
  }

  /// `usually`: without the key.
  static func ranges(_ table: inout TOMLReader, usually: [String] = []) -> [AddressRange] {
    (table.optionalStrings("allow_from") ?? usually).compactMap { text in
      if let range = AddressRange(text) { return range }
      table.note("allow_from", "\"\(text)\" is not allowed: expected an address or a range, such as \"192.168.1.0/24\"")
      return nil
    }
  }

  private static func dangers(_ table: inout TOMLReader) -> Set<SharingSettings.Danger> {
    var allowed: Set<SharingSettings.Danger> = []
    for word in table.strings("allow") {
      if let danger = SharingSettings.Danger(rawValue: word) {
        allowed.insert(danger)
      } else {
        let known = SharingSettings.Danger.allCases.map(\.rawValue).joined(separator: ", ")
        table.note("allow", "\"\(word)\" is not allowed: \(known)")
      }
    }
    return allowed
  }
}
