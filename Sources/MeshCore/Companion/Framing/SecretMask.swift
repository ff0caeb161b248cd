// SPDX-License-Identifier: MIT

/// Masks the secrets in a frame. Source: docs/protocol/companion.md § 12.1.
public enum SecretMask {
  /// The frame in hex with each secret byte shown as `··`.
  public static func hex(_ frame: [UInt8], _ direction: FrameDirection) -> String {
    let hidden = range(frame, direction)
    return frame.indices.map { hidden.contains($0) ? "··" : Hex.string([frame[$0]]) }.joined()
  }

  /// Commands and their replies may contain passwords.
  private static func isCommand(_ type: UInt8) -> Bool { TextType(rawValue: type).isCommandLine }

  private static func range(_ frame: [UInt8], _ direction: FrameDirection) -> Range<Int> {
    guard let code = frame.first else { return 0..<0 }
    switch (direction, code) {
    case (.fromRadio, 18), (.toRadio, 32): return 34..<Int.max
    case (.fromRadio, 13): return 4..<8
    case (.toRadio, 37): return 1..<5
    case (.toRadio, 26): return 33..<Int.max
    case (.fromRadio, 14), (.toRadio, 24): return 1..<Int.max
    case (.toRadio, 54): return 2..<18
    case (.fromRadio, 28), (.toRadio, 63): return 32..<48
    case (.toRadio, 2) where frame.count > 1 && isCommand(frame[1]): return 13..<Int.max
    case (.fromRadio, 7) where frame.count > 8 && isCommand(frame[8]): return 13..<Int.max
    case (.fromRadio, 16) where frame.count > 11 && isCommand(frame[11]): return 16..<Int.max
    case (.toRadio, 66), (.fromRadio, 29): return 1..<Int.max
    default: return 0..<0
    }
  }
}
