// SPDX-License-Identifier: MIT

import Foundation

/// The checkout that the tests were built from.
public enum Checkout {
  public static let folder = (0..<5).reduce(URL(filePath: #filePath)) { folder, _ in folder.deletingLastPathComponent()
  }
}
