// SPDX-License-Identifier: MIT

/// Why bytes are not the frame, packet or structure that they should be.
///
/// Frames that are longer than known and codes that are unknown are values, not errors.
public enum FrameError: Error, Equatable, Sendable, CustomStringConvertible {
  /// There is not even a code.
  case empty
  /// The bytes end before this field, or in it.
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
