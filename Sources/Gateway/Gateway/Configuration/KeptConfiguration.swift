// SPDX-License-Identifier: MIT

import EventLoop
import OwnFiles
import SQLite
import Store
import UntrustedText

/// Stores the configuration of the last start beside the database: a mistake that shows only after a power cut does not
/// keep a gateway on a hill from starting.
extension GatewayConfiguration {
  /// Reads `file`. If it is refused, reads the configuration of the last start instead, and `refusal` has the reason.
  public init(startingWith file: String) throws(Failure) {
    do throws(Failure) {
      try self.init(checking: file)
    } catch {
      guard let kept = Self.kept(of: file) else { throw error }
      self = kept
      refusal = error.description
    }
  }

  /// Reads `file`, and refuses what a gateway refuses that starts with it.
  public init(checking file: String) throws(Failure) {
    try self.init(file: file)
    if isBlank, let kept = Self.kept(of: file) { try self.init(file: file, inPlaceOf: kept) }
  }

  /// Reads `file`. Refuses an empty file that would remove upstreams: a full disk leaves such files.
  init(file: String, inPlaceOf current: GatewayConfiguration, openStore: String? = nil) throws(Failure) {
    try self.init(file: file, openStore: openStore)
    let names = current.upstreams.map(\.name).filter { name in !upstreams.contains { $0.name.isExactly(name) } }
    guard isBlank, !names.isEmpty else { return }
    throw Failure(
      description:
        "\(file): it is empty, which would remove \(names.joined(separator: ", ")): restore it, or write a setting into it, such as "
        + "[log], to continue without upstreams")
  }

  /// The file has no setting.
  public var isBlank: Bool {
    String(decoding: source, as: UTF8.self).lines.allSatisfy { $0.first { $0 != " " && $0 != "\t" } ?? "#" == "#" }
  }

  private static func kept(of file: String) -> GatewayConfiguration? {
    // A refused file may still contain the location of its store.
    let text = Files.read(file, most: largestFile).map { String(decoding: $0, as: UTF8.self) } ?? ""
    let named = text.lines.map { $0.pieces(at: "=", most: 2) }.first {
      ["location", "store.location"].contains($0[0].filter { !" \t\"'".contains($0) }) && $0.count > 1
    }
    let value = named.map { $0[1].drop { $0 == " " || $0 == "\t" } }
    let quoted = value?.unicodeScalars.first.map { String(value ?? "").pieces(at: $0) } ?? []
    let stores = [quoted.count > 1 ? quoted[1] : nil, usualStore]
    for location in stores.compactMap({ $0.map(place) }) {
      guard let bytes = Files.read(location, most: 2 * largestFile), bytes.starts(with: mark(file)) else {
        continue
      }
      // `try?`: without a valid copy, the caller reports the mistakes of the file.
      if let kept = try? GatewayConfiguration(parsing: Array(bytes.dropFirst(mark(file).count)), file: location) {
        return kept
      }
    }
    return nil
  }

  /// Stores this configuration, which was read from `file`, for the next start.
  func keep(of file: String) throws(SystemError) {
    let (bytes, location) = (Self.mark(file) + source, Self.place(store.location))
    guard refusal == nil, Files.read(location, most: 2 * Self.largestFile) != bytes else { return }
    try WholeFile.write(bytes, to: location)
  }

  private static func place(_ store: String) -> String { OwnSuffix.configuration.of(DatabaseFile.behindLinks(store)) }

  private static func mark(_ file: String) -> [UInt8] {
    Array("# \(file) as it was when the gateway last started with it\n".utf8)
  }
}
