// SPDX-License-Identifier: MIT

import Companion

/// Observes the frames on a link.
public protocol FrameTap: AnyObject {
  func passed(_ frame: [UInt8], _ direction: FrameDirection)
}
