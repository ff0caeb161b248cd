// SPDX-License-Identifier: MIT

import Escaping
import EventLoop

/// The configuration that the gateway last started with, beside its store: a mistake that is only found when the power comes back does not
/// keep a gateway on a hill from starting.
extension GatewayConfiguration {
  /// `file` as it stands; where that is refused, as it was when the gateway last started with it, and `refusal` says why.
  public init(startingWith file: String) throws(Failure) {
    do throws(Failure) {
      try self.init(file: file)
    } catch {
      guard let kept = Self.kept(of: file) else { throw error }
      self = kept
      refusal = error.description
    }
  }

  private static func kept(of file: String) -> GatewayConfiguration? {
    // What is refused may still say where its store is.
    let text = WholeFile.read(file, most: largestFile).map { String(decoding: $0, as: UTF8.self) } ?? ""
    let named = text.lines.first { $0.pieces(at: "=")[0].filter { $0 != " " } == "location" }
    let stores = [named.map { $0.pieces(at: "\"") }.flatMap { $0.count > 1 ? $0[1] : nil }, usualStore]
    for location in stores.compactMap({ $0.map(place) }) {
      guard let bytes = WholeFile.read(location, most: 2 * largestFile), bytes.starts(with: mark(file)) else {
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
    guard refusal == nil, WholeFile.read(location, most: 2 * Self.largestFile) != bytes else { return }
    try WholeFile.write(bytes, to: location)
  }

  private static func place(_ store: String) -> String { store + ".configuration" }

  private static func mark(_ file: String) -> [UInt8] {
    Array("# \(file) as it was when the gateway last started with it\n".utf8)
  }
}
