// SPDX-License-Identifier: MIT

import Timing

/// The moods that a seed chooses.
extension Mood {
  /// What a server and the line to it may do.
  static func ofServer(_ random: inout SeededRandom) -> Mood {
    switch Int.random(in: 0..<13, using: &random) {
    case 0: .refuses
    case 1: .deaf
    case 2: .mute
    case 3, 4: .pingsOnly
    case 5:
      .status(
        [400, 401, 403, 404, 409, 413, 422, 429, 500, 502, 503].randomElement(using: &random)!,
        retryAfter: [nil, nil, "30", "31536000", "31536000", "-1", "soon"].randomElement(using: &random)!)
    case 12:
      // Servers that are overloaded, or are being replaced. Some ask for a pause, and some for one that nobody means.
      .status(
        [429, 503].randomElement(using: &random)!,
        retryAfter: ["30", "31536000", "31536000", "99999999999999999999"].randomElement(using: &random)!)
    case 6: .portal
    case 7: .losesAnswers
    case 8: .cuts(Int.random(in: 1...3000, using: &random))
    case 9: .drips
    case 10: .takesHalf
    default: .slow([100, 2000, 8000, 30_000].randomElement(using: &random)!)
    }
  }

  /// What a hook's program may do.
  static func ofHook(_ random: inout SeededRandom) -> Mood {
    switch Int.random(in: 0..<8, using: &random) {
    case 0, 1: .mute
    case 2: .slow([2000, 9900, 30_000].randomElement(using: &random)!)
    case 3: .status([1, 2, 75, 126].randomElement(using: &random)!, retryAfter: nil)
    case 4: .dislikes(status: 1, every: [2, 3].randomElement(using: &random)!)
    case 5: .portal
    case 6: .losesAnswers
    default: [.takesHalf, .refuses].randomElement(using: &random)!
    }
  }
}
