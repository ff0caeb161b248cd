// SPDX-License-Identifier: MIT

import EventLoop
import UntrustedText

/// The configuration that the gateway last started with, beside its store: a mistake that is only found when the power comes back does not
/// keep a gateway on a hill from starting.
extension GatewayConfiguration {
  /// `file` as it stands; where that is refused, as it was when the gateway last started with it, and `refusal` says why.
  public init(startingWith file: String) throws(Failure) {
    do throws(Failure) {
      try self.init(file: file)
      if isBlank, let kept = Self.kept(of: file) { try self.init(file: file, inPlaceOf: kept) }
    } catch {
      guard let kept = Self.kept(of: file) else { throw error }
      self = kept
      refusal = error.description
    }
  }

  /// `file` as it stands. One that was emptied is refused where that would remove upstreams: a full disk, or a write that was cut off, leaves
  /// such a file.
  init(file: String, inPlaceOf current: GatewayConfiguration) throws(Failure) {
    try self.init(file: file)
    let names = current.upstreams.map(\.name).filter { name in !upstreams.contains { $0.name.isExactly(name) } }
    guard isBlank, !names.isEmpty else { return }
    throw Failure(
      description:
        "\(file): it is empty, which would remove \(names.joined(separator: ", ")): put it back, or write a setting into it, such as "
        + "[log], to go on without upstreams")
  }

  /// There is no setting in it.
  private var isBlank: Bool {
    String(decoding: source, as: UTF8.self).lines.allSatisfy { $0.first { $0 != " " && $0 != "\t" } ?? "#" == "#" }
  }

  private static func kept(of file: String) -> GatewayConfiguration? {
    // What is refused may still say where its store is.
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
      // `try?`: without one that is right, the mistakes of the file are told.
      if let kept = try? GatewayConfiguration(parsing: Array(bytes.dropFirst(mark(file).count)), file: location) {
        return kept
      }
    }
    return nil
  }

  /// Keeps it, which was read from `file`, for the next start.
  func keep(of file: String) throws(SystemError) {
    let (bytes, location) = (Self.mark(file) + source, Self.place(store.location))
    guard refusal == nil, Files.read(location, most: 2 * Self.largestFile) != bytes else { return }
    try WholeFile.write(bytes, to: location)
  }

  private static func place(_ store: String) -> String { store + ".configuration" }

  private static func mark(_ file: String) -> [UInt8] {
    Array("# \(file) as it was when the gateway last started with it\n".utf8)
  }
}
