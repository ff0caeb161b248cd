// SPDX-License-Identifier: MIT

/// Why bytes are not a valid frame, packet or structure.
///
/// Frames that are longer than known, and unknown codes, are values and not errors.
public enum FrameError: Error, Equatable, Sendable, CustomStringConvertible {
  /// The frame has no bytes, not even a code.
  case empty
  /// The bytes end before or within this field.
  case missing(field: String, wanted: Int, available: Int)
  /// A field has an invalid value.
  case invalid(field: String, reason: String)

  public var description: String {
    switch self {
    case .empty: "the frame is empty"
    case .missing(let field, let wanted, let available):
      "\(field) is missing: expected \(wanted) bytes, found \(available)"
    case .invalid(let field, let reason): "\(field) is invalid: \(reason)"
    }
  }
}
