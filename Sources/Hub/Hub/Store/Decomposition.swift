// SPDX-License-Identifier: MIT

import FoundationEssentials

/// Unicode's compatibility decomposition (NFKD): UAX #15, and for Hangul the core specification, 3.12. Foundation's decomposition would bring 34 MB
/// of ICU.
enum Decomposition {
  /// The decomposition of each scalar that has one, except Hangul.
  private static let mappings: [UInt32: [Unicode.Scalar]] = read(DecompositionTable.packed)

  /// The decomposition in canonical order: equivalent texts have equal ones.
  static func compatible(_ text: some Sequence<Unicode.Scalar>) -> [Unicode.Scalar] {
    var scalars: [Unicode.Scalar] = []
    for scalar in text {
      if scalar.value < 0xA0 {
        scalars.append(scalar)
      } else if (0xAC00...0xD7A3).contains(scalar.value) {
        scalars += hangul(scalar.value - 0xAC00)
      } else if let mapped = mappings[scalar.value] {
        scalars += mapped
      } else {
        scalars.append(scalar)
      }
    }
    order(&scalars)
    return scalars
  }

  private static func hangul(_ index: UInt32) -> [Unicode.Scalar] {
    let parts = [0x1100 + index / 588, 0x1161 + index % 588 / 28] + (index % 28 == 0 ? [] : [0x11A7 + index % 28])
    return parts.compactMap { Unicode.Scalar($0) }
  }

  /// Sorts successive marks by their combining classes; marks of one class keep their order.
  private static func order(_ scalars: inout [Unicode.Scalar]) {
    var from = 0
    while from < scalars.count {
      guard scalars[from].properties.canonicalCombiningClass != .notReordered else {
        from += 1
        continue
      }
      let end = scalars[from...].firstIndex { $0.properties.canonicalCombiningClass == .notReordered } ?? scalars.count
      // `sort` keeps the order of equal elements, but its documentation does not promise it: the offset decides.
      let marks = scalars[from..<end].enumerated().sorted {
        ($0.element.properties.canonicalCombiningClass.rawValue, $0.offset)
          < ($1.element.properties.canonicalCombiningClass.rawValue, $1.offset)
      }
      scalars.replaceSubrange(from..<end, with: marks.map(\.element))
      from = end
    }
  }

  /// Reads the packed table, a list of runs. A run has: the number of scalars between the last run and this one; twice the number of targets, plus
  /// one if a length follows, for a run whose targets count upwards; the length; and each target as its distance from the one before.
  /// Tests/decompositions writes it.
  private static func read(_ packed: String) -> [UInt32: [Unicode.Scalar]] {
    guard let data = Data(base64Encoded: packed) else { return [:] }
    var bytes = Array(data)[...]
    func number() -> Int {
      var (value, shift) = (0, 0)
      while let byte = bytes.popFirst() {
        value |= Int(byte & 0x7F) << shift
        shift += 7
        if byte & 0x80 == 0 { break }
      }
      return value
    }
    var (mappings, scalar, last) = ([UInt32: [Unicode.Scalar]](), 0, 0)
    while !bytes.isEmpty {
      scalar += number()
      let kind = number()
      let length = kind & 1 == 1 ? number() : 1
      let targets = (0..<kind >> 1).map { _ in
        let distance = number()
        last += distance & 1 == 1 ? -(distance >> 1) - 1 : distance >> 1
        return last
      }
      for step in 0..<length {
        mappings[UInt32(scalar + step)] = targets.compactMap { Unicode.Scalar(UInt32($0 + step)) }
      }
      scalar += length
    }
    return mappings
  }
}
